# millrace_embed(TARGET SYMBOL FILE)
#
# Links the bytes of FILE into TARGET as read-only data. C++ sees them as
#   extern "C" const unsigned char SYMBOL_begin[], SYMBOL_end[];
# aligned to 64 bytes, as GGUF tensors want. Changes of FILE rebuild the object.
enable_language(ASM)
function(millrace_embed target symbol file)
  set(source ${CMAKE_CURRENT_BINARY_DIR}/embed_${symbol}.S)
  # '%progbits' rather than '@progbits': '@' begins a comment on ARM.
  file(CONFIGURE OUTPUT ${source} CONTENT [[
.section .rodata.@symbol@, "a", %progbits
.balign 64
.globl @symbol@_begin
.globl @symbol@_end
@symbol@_begin:
.incbin "@file@"
@symbol@_end:
.byte 0
.section .note.GNU-stack, "", %progbits
]] @ONLY)
  target_sources(${target} PRIVATE ${source})
  set_source_files_properties(${source} PROPERTIES OBJECT_DEPENDS ${file} SKIP_PRECOMPILE_HEADERS ON)
endfunction()
