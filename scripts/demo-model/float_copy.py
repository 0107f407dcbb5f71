#!/usr/bin/env python3
"""Copies a GGUF file with every tensor as F32, decoded by the `gguf` package: the same weights without a quantised type,
so that no engine rounds activations to eight bits for them.

  float_copy.py IN.gguf OUT.gguf
"""
import sys

import gguf
import numpy


def main():
    reader = gguf.GGUFReader(sys.argv[1])
    writer = gguf.GGUFWriter(sys.argv[2], reader.fields["general.architecture"].contents())
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        value = 0 if field.name == "general.file_type" else field.contents()
        writer.add_key_value(field.name, value, *field.types[:2])
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(numpy.float32)
        writer.add_tensor(tensor.name, values.reshape([int(n) for n in tensor.shape][::-1]))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
