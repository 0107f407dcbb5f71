# millrace_module(NAME [DEPENDS folder...] [LIBRARIES target...])
#
# Makes the static library millrace_NAME from every .cc below src/NAME (new files are found by themselves, so that
# a model or a subcommand needs no edit here). DEPENDS are other folders of src; the layering is held twice, by
# these link edges and by scripts/check_layers.
#
# A source's suffix chooses its instruction set: *_avx2.cc, *_avxvnni.cc, *_avx512.cc, *_avx512bf16.cc,
# *_amx.cc, *_amxfp16.cc. Such files may
# define only functions with internal linkage or in a namespace of their own ISA: an inline function of a shared
# header, compiled here with wider instructions, could otherwise be the copy that the linker keeps for all.
function(millrace_module name)
  cmake_parse_arguments(ARG "" "" "DEPENDS;LIBRARIES" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cc)
  if(NOT sources)
    # A room that is named but still empty: only its place in the order of links.
    add_library(millrace_${name} INTERFACE)
    foreach(dep ${ARG_DEPENDS})
      target_link_libraries(millrace_${name} INTERFACE millrace_${dep})
    endforeach()
    return()
  endif()
  add_library(millrace_${name} STATIC ${sources})
  target_include_directories(millrace_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  foreach(dep ${ARG_DEPENDS})
    target_link_libraries(millrace_${name} PUBLIC millrace_${dep})
  endforeach()
  target_link_libraries(millrace_${name} PUBLIC ${ARG_LIBRARIES})
  foreach(source ${sources})
    set(flags "")
    if(source MATCHES "_avx2\\.cc$")
      set(flags -mavx2 -mfma -mf16c -mbmi2)
    elseif(source MATCHES "_avxvnni\\.cc$")
      set(flags -mavx2 -mfma -mf16c -mbmi2 -mavxvnni)
    elseif(source MATCHES "_avx512\\.cc$")
      set(flags -mavx2 -mfma -mf16c -mbmi2 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni)
    elseif(source MATCHES "_avx512bf16\\.cc$")
      set(flags -mavx2 -mfma -mf16c -mbmi2 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mavx512bf16)
    elseif(source MATCHES "_amx\\.cc$")
      set(flags -mavx2 -mfma -mf16c -mbmi2 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mavx512bf16 -mavx512vbmi -mgfni)
    elseif(source MATCHES "_amxfp16\\.cc$")
      set(flags -mavx2 -mfma -mf16c -mbmi2 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mavx512bf16 -mavx512fp16)
    endif()
    if(flags)
      list(APPEND flags -O3)
      if(MILLRACE_SANITIZE AND NOT MILLRACE_SANITIZE_SIMD)
        # Thousands of inlined intrinsics take the sanitizers ten minutes to instrument.
        list(APPEND flags -fno-sanitize=all)
      endif()
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${flags}" SKIP_PRECOMPILE_HEADERS ON
                                  SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
  endforeach()
  if(name MATCHES "^(loaders|grammar|engine|api|server|compress|text)$")
    # Compiled together: what their files include costs more than what they say. So names in anonymous namespaces have to
    # differ within these folders. The others are small files, or many of one form with the same local names (models, text).
    set_target_properties(millrace_${name} PROPERTIES UNITY_BUILD ${MILLRACE_UNITY} UNITY_BUILD_BATCH_SIZE 8)
    if(MILLRACE_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      # Of a type that holds one of an anonymous namespace: harmless in a source file, which here is an included one.
      target_compile_options(millrace_${name} PRIVATE -Wno-subobject-linkage)
    endif()
  endif()
  if(name MATCHES "^(api|server)$")
    # They read and write JSON and HTTP a few times a request: the last optimisations cost a quarter of the compiler's time
    # and nothing shows them.
    target_compile_options(millrace_${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
  # Two precompiled headers serve all folders: core's, and for those that speak JSON grammar's.
  if(name MATCHES "^(core|grammar)$")
    target_precompile_headers(millrace_${name} PRIVATE ${PROJECT_SOURCE_DIR}/src/${name}/pch.h)
  elseif(name MATCHES "^(api|server)$")
    target_precompile_headers(millrace_${name} REUSE_FROM millrace_grammar)
  else()
    target_precompile_headers(millrace_${name} REUSE_FROM millrace_core)
  endif()
endfunction()
