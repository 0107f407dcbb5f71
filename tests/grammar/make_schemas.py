#!/usr/bin/env python3
"""Makes schemas.jsonl: schemas over every keyword, by hand and at random (fixed seed), with instances whose verdicts come
from Python's jsonschema.

usage: make_schemas.py > schemas.jsonl
"""
import json
import random

import jsonschema
from jsonschema.validators import validator_for

RNG = random.Random(20240611)

HAND = [
    # (schema, instances); verdicts are computed
    (True, [1, "x", None, [], {}]),
    ({"type": "null"}, [None, 0, "null"]),
    ({"type": "boolean"}, [True, False, 0, None]),
    ({"type": "integer"}, [0, -0.0, 1.0, 12345678901234567890, 1.5, "1", -7]),
    ({"type": "number"}, [0, -1.25, 1e5, "1"]),
    ({"type": "string"}, ["", "a\"\\\n", "\u00e9\U0001f600", 1]),
    ({"type": ["integer", "null"]}, [1, None, 1.5, "x"]),
    ({"type": "integer", "minimum": 3, "maximum": 12}, list(range(0, 16)) + [3.0, 3.5]),
    ({"type": "integer", "exclusiveMinimum": -3, "exclusiveMaximum": 3}, list(range(-5, 6))),
    ({"type": "number", "minimum": -1.5, "maximum": 2.25}, [-1.5, -1.51, -1.49, 0, 2.25, 2.26, 2.2, 3, -2, 10, 0.001]),
    ({"type": "number", "exclusiveMinimum": 0}, [0, 0.0, 0.001, 1, -1, -0.5]),
    ({"type": "number", "exclusiveMaximum": 10.5}, [10.5, 10.4, 10.49999, 11, -100, 10]),
    ({"minimum": 100}, [99, 100, 1000, "x", None, 99.99, -100]),
    ({"type": "integer", "multipleOf": 3}, [0, 3, -6, 4, 9.0, 100, 99]),
    ({"type": "integer", "multipleOf": 40}, [0, 40, 80, 100, 120, 20, -400]),
    ({"type": "integer", "multipleOf": 7, "minimum": 10, "maximum": 60}, [7, 14, 21, 56, 63, 15]),
    ({"multipleOf": 2}, [1, 2, 2.5, "x", 4.0]),
    ({"type": "string", "minLength": 2, "maxLength": 4}, ["a", "ab", "abcd", "abcde", "\u00e9\u00e9", "\U0001f600\U0001f600", "\U0001f600"]),
    ({"type": "string", "pattern": "^a+b$"}, ["ab", "aab", "b", "abb", "xab"]),
    ({"type": "string", "pattern": "b"}, ["ab", "b", "aaa", "xby"]),
    ({"type": "string", "pattern": "^[a-z]{3}$|^[0-9]+$"}, ["abc", "ab", "123", "a1"]),
    ({"type": "string", "pattern": "^\\d{3}-\\w+$"}, ["123-a_9", "12-a", "123-"]),
    ({"type": "string", "pattern": "^(?!foo)[a-z]+$"}, ["foo", "foobar", "bar", "fo"]),
    ({"type": "string", "pattern": "\\bcat\\b"}, ["cat", "a cat b", "concat", "cats"]),
    ({"type": "string", "pattern": "^.{2,5}$", "minLength": 4}, ["ab", "abcd", "abcde", "abcdef"]),
    ({"type": "string", "pattern": "^(aa)+$", "minLength": 3, "maxLength": 7}, ["aa", "aaaa", "aaa", "aaaaaa", "aaaaaaaa"]),
    ({"type": "string", "maxLength": 100000}, ["", "a" * 1000]),
    ({"type": "string", "pattern": "^[a-f]{1,100000}$"}, ["a", "abcdef", "", "g"]),
    ({"enum": ["a", "b", 1, 2.5, None, True, [1, 2], {"x": 1}]}, ["a", "c", 1, 1.0, 2.5, None, True, False, [1, 2], [2, 1], {"x": 1}, {"x": 2}, {}]),
    ({"const": "x\"y"}, ["x\"y", "x"]),
    ({"const": {"a": [1, {"b": None}]}}, [{"a": [1, {"b": None}]}, {"a": [1, {"b": 0}]}, {"a": [1]}]),
    ({"const": 5}, [5, 5.0, 6, "5"]),
    ({"const": 0}, [0, 0.0, -0.0, 1]),
    ({"enum": [0.5, 10, -3]}, [0.5, 10, 10.0, -3, 3]),
    ({"type": "array"}, [[], [1, "x"], {}]),
    ({"type": "array", "items": {"type": "integer"}}, [[], [1, 2], ["x"], [1, "x"]]),
    ({"type": "array", "minItems": 2, "maxItems": 3}, [[1], [1, 2], [1, 2, 3], [1, 2, 3, 4]]),
    ({"prefixItems": [{"type": "integer"}, {"type": "string"}], "items": False}, [[], [1], [1, "x"], [1, "x", 2], ["x"]]),
    ({"prefixItems": [{"type": "integer"}], "items": {"type": "string"}}, [[], [1, "a", "b"], [1, 2]]),
    ({"type": "array", "prefixItems": [{"const": 1}], "minItems": 3}, [[1, 2, 3], [1, 2], [2, 2, 3]]),
    ({"type": "array", "contains": {"type": "string"}}, [[], [1], [1, "x"], ["x", "y"]]),
    ({"type": "array", "contains": {"const": 5}, "minContains": 2, "maxContains": 3}, [[5], [5, 5], [5, 1, 5, 5], [5, 5, 5, 5], []]),
    ({"type": "array", "contains": {"const": 5}, "minContains": 0, "maxContains": 1}, [[], [5], [5, 5], [1, 2]]),
    ({"type": "array", "items": {"enum": ["a", "b", "c"]}, "uniqueItems": True}, [[], ["a"], ["a", "b"], ["a", "a"], ["c", "b", "a"]]),
    ({"type": "array", "items": {"type": "string"}, "uniqueItems": True, "minItems": 2}, [["x", "y"], ["x", "x"], ["x"]]),
    ({"type": "array", "items": {"type": "integer"}, "uniqueItems": True}, [[1, 2], [1, 1], [1, 1.0], [10, 1], []]),
    ({"type": "array", "items": {"type": "object", "properties": {"a": {"type": "integer"}}}, "uniqueItems": True}, [[{"a": 1}, {"a": 2}], [{"a": 1}, {"a": 1}], [{}, {}], [{"a": 1, "b": 2}, {"b": 2, "a": 1}]]),
    ({"type": "array", "items": {"type": "boolean"}, "uniqueItems": True}, [[True], [True, False], [True, True]]),
    ({"type": "object"}, [{}, {"a": 1}, []]),
    ({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}}, [{}, {"a": 1}, {"a": "x"}, {"b": "x", "a": 1}, {"c": None, "a": 2}]),
    ({"type": "object", "properties": {"a": {"type": "integer"}, "ab": {"type": "string"}}, "required": ["ab"], "additionalProperties": False}, [{}, {"ab": "x"}, {"a": 1, "ab": "x"}, {"ab": "x", "abc": 1}, {"a": 1}]),
    ({"type": "object", "additionalProperties": {"type": "integer"}}, [{}, {"x": 1}, {"x": "y"}]),
    ({"type": "object", "required": ["a", "b"]}, [{}, {"a": 1}, {"b": 1, "a": 2}, {"a": 1, "b": 2, "c": 3}]),
    ({"type": "object", "patternProperties": {"^x": {"type": "integer"}}, "additionalProperties": {"type": "string"}}, [{}, {"x1": 1}, {"x1": "s"}, {"y": "s"}, {"y": 1}]),
    ({"type": "object", "properties": {"xa": {"minimum": 5}}, "patternProperties": {"^x": {"type": "integer"}}}, [{"xa": 5}, {"xa": 4}, {"xa": "s"}, {"xb": 1}, {"xb": "s"}, {"other": "s"}]),
    ({"type": "object", "propertyNames": {"pattern": "^[a-c]+$"}}, [{}, {"abc": 1}, {"d": 1}, {"ad": 2}]),
    ({"type": "object", "propertyNames": {"enum": ["a", "b"]}, "minProperties": 2}, [{}, {"a": 1}, {"a": 1, "b": 2}, {"a": 1, "c": 2}]),
    ({"type": "object", "propertyNames": {"maxLength": 3}}, [{"abc": 1}, {"abcd": 1}]),
    ({"type": "object", "minProperties": 1, "maxProperties": 2}, [{}, {"a": 1}, {"a": 1, "b": 2}, {"a": 1, "b": 2, "c": 3}]),
    ({"type": "object", "properties": {"a": {}, "b": {}, "c": {}}, "required": ["c"], "maxProperties": 2, "additionalProperties": False}, [{"c": 1}, {"a": 1, "c": 2}, {"a": 1, "b": 1}, {"a": 1, "b": 2, "c": 3}]),
    ({"type": "object", "dependentRequired": {"a": ["b", "c"]}}, [{}, {"a": 1}, {"a": 1, "b": 2, "c": 3}, {"b": 1}]),
    ({"type": "object", "dependentSchemas": {"a": {"properties": {"b": {"type": "integer"}}, "required": ["b"]}}}, [{}, {"a": 1}, {"a": 1, "b": 2}, {"b": "x"}, {"a": 1, "b": "x"}]),
    ({"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "dependencies": {"a": ["b"], "c": {"required": ["d"]}}}, [{}, {"a": 1}, {"a": 1, "b": 1}, {"c": 1}, {"c": 1, "d": 1}]),
    ({"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"type": "integer"}, {"type": "string"}], "additionalItems": False}, [[1, "a"], [1], [1, "a", 2], ["a"]]),
    ({"anyOf": [{"type": "string", "maxLength": 2}, {"type": "integer", "minimum": 10}]}, ["ab", "abc", 10, 9, None]),
    ({"anyOf": [{"type": "object", "required": ["a"]}, {"type": "object", "required": ["b"]}]}, [{}, {"a": 1}, {"b": 1}, {"a": 1, "b": 1}, {"c": 1}]),
    ({"oneOf": [{"type": "integer"}, {"type": "string"}]}, [1, "x", None]),
    ({"oneOf": [{"type": "integer", "multipleOf": 2}, {"type": "integer", "multipleOf": 3}]}, [2, 3, 6, 4, 9, 12, 1]),
    ({"oneOf": [{"type": "object", "required": ["a"]}, {"type": "object", "required": ["b"]}]}, [{}, {"a": 1}, {"b": 1}, {"a": 1, "b": 1}]),
    ({"oneOf": [{"properties": {"k": {"const": "x"}, "v": {"type": "integer"}}, "required": ["k", "v"]}, {"properties": {"k": {"const": "y"}, "v": {"type": "string"}}, "required": ["k", "v"]}]}, [{"k": "x", "v": 1}, {"k": "y", "v": "s"}, {"k": "x", "v": "s"}, {"v": 1, "k": "x"}, {"k": "z", "v": 1}, 7]),
    ({"oneOf": [{"type": "string", "pattern": "^a"}, {"type": "string", "pattern": "b$"}]}, ["ax", "xb", "ab", "axb", "x"]),
    ({"oneOf": [{"type": "number"}, {"type": "integer"}]}, [1, 1.5, 2.0, "x"]),
    ({"oneOf": [{"minimum": 5}, {"maximum": 10}]}, [4, 5, 7, 10, 11, "x"]),
    ({"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"type": "object", "properties": {"b": {"type": "string"}}, "required": ["b"]}]}, [{"a": 1}, {"a": 1, "b": "x"}, {"b": "x", "a": "y"}]),
    ({"allOf": [{"minimum": 3}, {"maximum": 5}], "type": "integer"}, [2, 3, 5, 6]),
    ({"allOf": [{"type": "array", "items": {"minimum": 2}}, {"items": {"maximum": 4}}]}, [[2, 3, 4], [1], [5], []]),
    ({"not": {"type": "string"}}, ["x", 1, None, {}, []]),
    ({"type": "string", "not": {"pattern": "^x"}}, ["x", "xy", "yx", ""]),
    ({"type": "integer", "not": {"multipleOf": 5}}, [0, 5, 6, -10, 11]),
    ({"type": "object", "not": {"required": ["a"]}}, [{}, {"a": 1}, {"b": 1}]),
    ({"type": "object", "not": {"properties": {"a": {"type": "integer"}}, "required": ["a"]}}, [{}, {"a": 1}, {"a": "x"}]),
    ({"type": "object", "not": {"additionalProperties": {"type": "integer"}}}, [{}, {"a": 1}, {"a": "x"}, {"a": 1, "b": "x"}]),
    ({"type": "array", "not": {"items": {"type": "integer"}}}, [[], [1], ["x"], [1, "x"]]),
    ({"type": "array", "not": {"contains": {"type": "integer"}}}, [[], [1], ["x"], [1, "x"]]),
    ({"not": {"enum": ["a", 1, None]}}, ["a", "b", 1, 2, None, True]),
    ({"not": {"const": {"a": 1}}}, [{"a": 1}, {"a": 2}, {}, {"a": 1, "b": 2}, 5]),
    ({"if": {"properties": {"t": {"const": 1}}, "required": ["t"]}, "then": {"required": ["x"]}, "else": {"required": ["y"]}, "type": "object"}, [{}, {"t": 1}, {"t": 1, "x": 1}, {"t": 2, "y": 1}, {"t": 2}, {"y": 0}]),
    ({"type": "integer", "if": {"minimum": 10}, "then": {"multipleOf": 5}}, [3, 10, 11, 15, 20]),
    ({"type": "object", "allOf": [{"if": {"properties": {"k": {"const": c}}, "required": ["k"]}, "then": {"required": [c]}} for c in "abcd"], "properties": {"k": {"enum": ["a", "b", "c", "d"]}}, "required": ["k"]}, [{"k": "a"}, {"k": "a", "a": 1}, {"k": "b", "a": 1}, {"k": "d", "d": 0}]),
    ({"$defs": {"n": {"type": "object", "properties": {"v": {"type": "integer"}, "next": {"$ref": "#/$defs/n"}}, "required": ["v"], "additionalProperties": False}}, "$ref": "#/$defs/n"}, [{"v": 1}, {"v": 1, "next": {"v": 2}}, {"v": 1, "next": {}}, {"next": {"v": 1}}]),
    ({"type": "object", "properties": {"c": {"type": "array", "items": {"$ref": "#"}}}, "additionalProperties": False}, [{}, {"c": []}, {"c": [{}, {"c": [{}]}]}, {"c": [1]}]),
    ({"$defs": {"a": {"$anchor": "here", "type": "integer"}}, "$ref": "#here"}, [1, "x"]),
    ({"$id": "http://example.com/root.json", "$defs": {"x": {"$id": "other.json", "type": "string"}}, "properties": {"p": {"$ref": "other.json"}, "q": {"$ref": "http://example.com/other.json"}}}, [{"p": "s"}, {"p": 1}, {"q": "s"}, {"q": 1}]),
    ({"allOf": [{"properties": {"a": {"type": "integer"}}}], "properties": {"b": {"type": "string"}}, "unevaluatedProperties": False, "type": "object"}, [{}, {"a": 1}, {"b": "x"}, {"c": 1}, {"a": 1, "b": "x"}]),
    ({"type": "object", "anyOf": [{"properties": {"a": {"const": 1}}, "required": ["a"]}, {"properties": {"b": {"const": 2}}, "required": ["b"]}], "unevaluatedProperties": False}, [{"a": 1}, {"b": 2}, {"a": 1, "b": 2}, {"a": 1, "b": 3}, {"a": 1, "c": 1}]),
    ({"type": "array", "prefixItems": [{"type": "integer"}], "unevaluatedItems": {"type": "string"}}, [[1], [1, "x"], [1, 2], ["x"]]),
    ({"type": "array", "contains": {"type": "integer"}, "unevaluatedItems": {"type": "string"}}, [[1], [1, "x"], ["x"], [1, None], [1, 2, "a"]]),
    ({"type": "string", "format": "date"}, ["2024-02-29", "2023-02-29", "2024-1-1", "1999-12-31", "2024-13-01"]),
    ({"type": "string", "format": "ipv4"}, ["1.2.3.4", "256.1.1.1", "1.2.3", "0.0.0.0"]),
    ({"type": "string", "format": "ipv6"}, ["::", "::1", "1::2", "2001:db8::ff00:42:8329", "1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7", "::ffff:1.2.3.4", "12345::"]),
    ({"type": "string", "format": "uuid"}, ["123e4567-e89b-12d3-a456-426614174000", "123e4567e89b12d3a456426614174000"]),
    ({"type": "object", "properties": {"a": False}}, [{}, {"a": 1}, {"b": 1}]),
    ({"type": "object", "properties": {"a": {"type": "string", "enum": ["x", 1]}}, "required": ["a"]}, [{"a": "x"}, {"a": 1}, {}]),
    ({"items": False, "type": "array"}, [[], [1]]),
    ({"type": "object", "patternProperties": {"a": {"type": "integer"}, "b": {"minimum": 5}}}, [{"ab": 5}, {"ab": 4}, {"a": 1}, {"b": "s"}, {"ab": "s"}]),
    ({"type": "object", "patternProperties": {"^(x|y)$": {"type": "integer"}}, "additionalProperties": False, "minProperties": 2}, [{"x": 1, "y": 2}, {"x": 1}, {"x": 1, "z": 2}]),
    ({"type": "string", "format": "regex"}, ["a+b", "^[a-z]{2}$", "(ab|c)?d", "\\d+\\.", "(", "a{2}*", "[z", ""]),
    # What one branch forbids is only asked of the types that another allows.
    ({"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "uniqueItems": True}]}, ["a", ["a"], ["a", "a"], [], 1]),
    ({"$defs": {"step": {"oneOf": [{"type": "string"}, {"type": "object", "properties": {"all": {"type": "array", "items": {"$ref": "#/$defs/step"}}}, "required": ["all"]}]}}, "$ref": "#/$defs/step"}, ["a", {"all": []}, {"all": ["a", {"all": ["b"]}]}, {"all": [1]}, {}]),
    # Boolean schemas, siblings of $ref, pointers with escapes, names beyond ASCII.
    ({"properties": {"foo": True, "bar": False}}, [{}, {"foo": 1}, {"bar": 2}, {"foo": 1, "bar": 2}]),
    ({"allOf": [True, True]}, ["x", 1]),
    ({"anyOf": [True, False]}, ["x", 1]),
    ({"oneOf": [True, False, False]}, ["x", 1]),
    ({"not": False}, ["x", 1, {}]),
    ({"$defs": {"r": {"type": "array"}}, "properties": {"foo": {"$ref": "#/$defs/r", "maxItems": 2}}}, [{"foo": []}, {"foo": [1, 2, 3]}, {"foo": "x"}]),
    ({"$schema": "http://json-schema.org/draft-07/schema#", "definitions": {"r": {"type": "array"}}, "properties": {"foo": {"$ref": "#/definitions/r", "maxItems": 2}}}, [{"foo": []}, {"foo": [1, 2, 3]}, {"foo": "x"}]),
    ({"$defs": {"a~b": {"type": "integer"}, "c/d": {"type": "string"}, "e%f": {"type": "null"}}, "properties": {"t": {"$ref": "#/$defs/a~0b"}, "s": {"$ref": "#/$defs/c~1d"}, "p": {"$ref": "#/$defs/e%25f"}}}, [{"t": 1}, {"t": "x"}, {"s": "x"}, {"s": 1}, {"p": None}, {"p": 1}]),
    ({"properties": {"f\u00f6\u00f6\tbar": {"type": "number"}, "\u2028": {"type": "null"}, "\U0001f600": {"type": "string"}}, "additionalProperties": False}, [{"f\u00f6\u00f6\tbar": 1}, {"f\u00f6\u00f6\tbar": "x"}, {"\u2028": None}, {"\U0001f600": "y"}, {"\U0001f600": 1}, {"x": 1}]),
    ({"properties": {"__proto__": {"type": "number"}, "constructor": {"type": "number"}, "$ref": {"type": "string"}}}, [{"__proto__": "x"}, {"constructor": 3}, {"$ref": "a"}, {"$ref": 2}, {}]),
    ({"properties": {"$ref": {"$ref": "#/$defs/is-string"}}, "$defs": {"is-string": {"type": "string"}}}, [{"$ref": "a"}, {"$ref": 2}]),
    ({"$id": "http://example.com/base/", "$defs": {"l": {"$id": "folder/", "$defs": {"s": {"$id": "x.json", "type": "integer"}}}}, "items": {"$ref": "folder/x.json"}}, [[1], ["a"], []]),
    ({"$defs": {"A": {"$id": "http://example.com/nested", "$defs": {"B": {"$anchor": "foo", "type": "integer"}}}}, "$ref": "http://example.com/nested#foo"}, [1, "a"]),
    ({"items": {"$ref": "#/prefixItems/0"}, "prefixItems": [{"type": "integer"}]}, [[1, 2], [1, "x"], [1], []]),
    ({"properties": {"foo": {"$ref": "#"}}, "additionalProperties": False}, [{"foo": False}, {"foo": {"foo": False}}, {"bar": False}, {"foo": {"bar": False}}]),
    ({"allOf": [{"$ref": "#/$defs/b"}, {"$ref": "#/$defs/b"}], "$defs": {"b": {"type": "integer"}}}, [1, "x"]),
    # Counts and numbers, written in other ways.
    ({"maxLength": 2.0}, ["f", "foo", 1]),
    ({"minItems": 1.0}, [[1], [], 1]),
    ({"contains": {"const": 1}, "minContains": 2}, [[1], [1, 1], [1, 2, 1], []]),
    ({"contains": {"const": 1}, "minContains": 0}, [[], [2], [1]]),
    ({"minContains": 3}, [[], [1], 5]),
    ({"contains": False}, [["a"], [], "x"]),
    ({"contains": True}, [["a"], []]),
    ({"contains": {"multipleOf": 3}, "items": {"multipleOf": 2}}, [[2, 4, 8], [3, 6, 9], [6, 12], [1, 5]]),
    ({"items": {"minimum": 3}, "contains": {"minimum": 5}}, [[3, 4, 5], [3, 4], [2, 6], []]),
    ({"const": [False]}, [[False], [0], [[False]]]),
    ({"const": {"a": False}}, [{"a": False}, {"a": 0}, {"a": 0.0}]),
    ({"enum": [[False], {"foo": {"bar": [1, 2.0]}}]}, [[False], [0], {"foo": {"bar": [1, 2]}}, {"foo": {"bar": [1, 3]}}]),
    ({"const": "hello\u0000there"}, ["hello\u0000there", "hellothere"]),
    ({"pattern": "^\\S(|(.|\\n)*\\S)$"}, ["a", "a b", " a", ""]),
    ({"patternProperties": {"f.*o": {"type": "integer"}, "aaa*": {"maximum": 20}}}, [{"foo": 1}, {"foo": "x"}, {"aaaa": 18}, {"aaaa": 31}, {"faao": 21}]),
    ({"patternProperties": {"^\u00e1": {}}, "additionalProperties": False}, [{"\u00e1rm": 1}, {"elm": 1}]),
    ({"patternProperties": {"X_": {"type": "string"}}, "properties": {"foo": {"type": "array", "maxItems": 3}}, "additionalProperties": {"type": "integer"}}, [{"foo": []}, {"foo": [1, 2, 3, 4]}, {"aX_b": "s"}, {"aX_b": 1}, {"q": 1}, {"q": "s"}]),
    ({"propertyNames": False}, [{}, {"a": 1}, 5]),
    ({"propertyNames": {"const": "foo"}}, [{"foo": 1}, {"bar": 1}, {}]),
    ({"dependentRequired": {"bar": []}}, [{}, {"bar": 2}, 3]),
    ({"dependentRequired": {"foo\nbar": ["foo\rbar"], "foo\"bar": ["foo'bar"]}}, [{"foo\nbar": 1, "foo\rbar": 2}, {"foo\nbar": 1}, {"foo'bar": 1, "foo\"bar": 2}, {"foo\"bar": 2}]),
    ({"dependentSchemas": {"foo": True, "bar": False}}, [{"foo": 1}, {"bar": 2}, {"foo": 1, "bar": 2}, {}]),
    ({"dependentSchemas": {"foo\tbar": {"minProperties": 4}, "foo'bar": {"required": ["foo\"bar"]}}}, [{"foo\tbar": 1, "a": 2, "b": 3, "c": 4}, {"foo'bar": {}}, {"foo\tbar": 1}]),
    ({"if": {"exclusiveMaximum": 0}, "then": {"minimum": -10}, "else": {"maximum": 10}}, [-1, -100, 3, 11]),
    ({"allOf": [{"if": {"exclusiveMaximum": 0}}, {"then": {"minimum": -10}}, {"else": {"maximum": 10}}]}, [-100, 3, 50]),
    ({"not": {"not": {"type": "integer"}}}, [1, "x", 1.5]),
    ({"anyOf": [{"allOf": [{"type": "null"}]}]}, [None, 1]),
    ({"oneOf": [{"required": ["foo", "bar"]}, {"required": ["foo", "baz"]}], "type": "object"}, [{"bar": 2}, {"foo": 1, "bar": 2}, {"foo": 1, "baz": 2}, {"foo": 1, "bar": 2, "baz": 3}]),
    ({"properties": {"foo": {"type": "string"}}, "allOf": [{"properties": {"bar": True}, "unevaluatedProperties": False}]}, [{"foo": "x"}, {"bar": 1}, {"foo": "x", "bar": 1}]),
    ({"if": {"properties": {"foo": {"const": "then"}}, "required": ["foo"]}, "then": {"properties": {"bar": True}, "required": ["bar"]}, "else": {"properties": {"baz": True}, "required": ["baz"]}, "unevaluatedProperties": False}, [{"foo": "then", "bar": 1}, {"foo": "then", "bar": 1, "baz": 1}, {"baz": 1}, {"foo": "else", "baz": 1}]),
    ({"prefixItems": [True], "allOf": [{"prefixItems": [True, {"type": "number"}]}], "unevaluatedItems": False}, [["a", 1], ["a", 1, 2], ["a", "b"], []]),
    ({"$dynamicRef": "#node", "$defs": {"n": {"$dynamicAnchor": "node", "type": "integer"}}}, [1, "x"]),
    ({"$comment": "remark", "title": 5, "default": "x", "examples": [1], "type": "integer"}, [1, "x"]),
    ({"type": "number", "multipleOf": 0.01}, [0, 0.01, 1, 1.0, 19.99, 0.02, 100, 5.5, 0.001, 0.015, "x", -2.25]),
    ({"type": "array", "not": {"uniqueItems": True}}, [[1, 1], [1, 1.0], [1, 2], ["a", "b", "a"], [{"a": 1, "b": 2}, {"b": 2, "a": 1}], [[]], [[], []], [], "x"]),
    ({"type": "integer", "multipleOf": 5}, [10, 10.0, 12, -15, 123456789012345]),
]

REFUSED = [
    {"$ref": "http://example.com/elsewhere.json"},
    {"$ref": "#"},
    {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
    {"$ref": "#/nowhere"},
    {"type": "string", "pattern": "(a)\\1"},
    {"type": "string", "pattern": "a(?=b)c"},
    {"type": "string", "pattern": "("},
    False,
    {"type": "integer", "minimum": 5, "maximum": 4},
    {"type": "string", "minLength": 5, "maxLength": 4},
    {"enum": []},
    {"type": "string", "const": 1},
    {"type": "object", "properties": {"a": False}, "required": ["a"]},
    {"type": "string", "pattern": "^a{3}$", "minLength": 4},
    {"type": "array", "items": False, "minItems": 1},
    {"type": "array", "items": {"type": "boolean"}, "uniqueItems": True, "minItems": 3},
    {"allOf": [{"type": "string"}, {"type": "integer"}]},
    {"type": "nonsense"},
]

WORDS = ["a", "b", "ab", "id", "name", "x\"y", "\u00e9", "key one", "", "value", "n\\m"]


NEGATED = [0]  # inside not, if or oneOf: what is no member of a format is not generated there, by design


def random_string_schema():
    s = {"type": "string"}
    kind = RNG.randrange(5)
    if kind == 3 and NEGATED[0]:
        kind = 4
    if kind == 0:
        s["minLength"] = RNG.randrange(0, 4)
        if RNG.random() < 0.7:
            s["maxLength"] = s["minLength"] + RNG.randrange(0, 6)
    elif kind == 1:
        s["pattern"] = RNG.choice(["^[a-z]+$", "^a|b$", "[0-9]{2}", "^(ab|cd)*$", "^\\S+$", "^[A-Z][a-z]*( [A-Z][a-z]*)?$", "^x?y{1,3}$", "[^a-c]$", "^$", "^#[0-9a-f]{6}$", "^\\d+(\\.\\d+)?$"])
    elif kind == 2:
        s["enum"] = RNG.sample(WORDS, RNG.randrange(1, 5))
    elif kind == 3:
        s["format"] = RNG.choice(["date", "ipv4", "uuid", "ipv6"])
    return s


def random_number_schema():
    s = {"type": RNG.choice(["integer", "number"])}
    if RNG.random() < 0.6:
        low = RNG.choice([0, 1, -5, 10, 99, -100, 0.5, -2.75])
        s[RNG.choice(["minimum", "exclusiveMinimum"])] = low
        if RNG.random() < 0.6:
            s[RNG.choice(["maximum", "exclusiveMaximum"])] = low + RNG.choice([1.5, 3, 10, 1000])
    if s["type"] == "integer" and RNG.random() < 0.3:
        s["multipleOf"] = RNG.choice([1, 2, 3, 5, 10])
        s.pop("exclusiveMaximum", None)
        s.pop("maximum", None)
    return s


def random_schema(depth):
    kinds = ["string", "number", "bool", "enum", "const"]
    if depth > 0:
        kinds += ["object", "object", "object", "array", "array", "anyOf", "oneOf", "allOf", "if", "not"]
    kind = RNG.choice(kinds)
    if kind == "string":
        return random_string_schema()
    if kind == "number":
        return random_number_schema()
    if kind == "bool":
        return RNG.choice([{"type": "boolean"}, {"type": "null"}, {"type": ["boolean", "null"]}, {}, True])
    if kind == "enum":
        return {"enum": RNG.sample([0, 1, "a", "b", None, True, 2.5, [], [1], {"a": 1}, {}], RNG.randrange(1, 5))}
    if kind == "const":
        return {"const": RNG.choice([0, "a", None, [1, "x"], {"k": {"m": 1}}, -1.5, ""])}
    if kind == "object":
        s = {"type": "object"}
        names = RNG.sample(WORDS, RNG.randrange(0, 5))
        if names:
            s["properties"] = {n: random_schema(depth - 1) for n in names}
        if names and RNG.random() < 0.6:
            s["required"] = RNG.sample(names, RNG.randrange(0, len(names) + 1))
        if RNG.random() < 0.5:
            s["additionalProperties"] = RNG.choice([False, False, True, {"type": "integer"}, {"type": "string"}])
        if RNG.random() < 0.2:
            s["patternProperties"] = {RNG.choice(["^x", "a$", "[0-9]", "^id"]): random_schema(0)}
        if RNG.random() < 0.15:
            s["minProperties"] = RNG.randrange(0, 3)
        if RNG.random() < 0.15:
            s["maxProperties"] = RNG.randrange(len(s.get("required", [])), len(names) + 2)
        if RNG.random() < 0.15:
            s["propertyNames"] = RNG.choice([{"maxLength": 4}, {"pattern": "^[a-zA-Z]*$"}, {"enum": WORDS[:6]}])
        if len(names) > 1 and RNG.random() < 0.2:
            s["dependentRequired"] = {names[0]: [names[1]]}
        return s
    if kind == "array":
        s = {"type": "array"}
        if RNG.random() < 0.7:
            s["items"] = random_schema(depth - 1)
        if RNG.random() < 0.3:
            s["prefixItems"] = [random_schema(depth - 1) for _ in range(RNG.randrange(1, 3))]
        if RNG.random() < 0.3:
            s["minItems"] = RNG.randrange(0, 3)
        if RNG.random() < 0.3:
            s["maxItems"] = s.get("minItems", 0) + RNG.randrange(0, 4)
        if RNG.random() < 0.2:
            s["contains"] = random_schema(0)
        if RNG.random() < 0.15:
            s["uniqueItems"] = True
        return s
    if kind in ("oneOf", "if", "not"):
        NEGATED[0] += 1
    try:
        return combined_schema(kind, depth)
    finally:
        if kind in ("oneOf", "if", "not"):
            NEGATED[0] -= 1


def combined_schema(kind, depth):
    if kind in ("anyOf", "oneOf", "allOf"):
        return {kind: [random_schema(depth - 1) for _ in range(RNG.randrange(1, 4))]}
    if kind == "if":
        s = {"if": random_schema(depth - 1)}
        for k in ("then", "else"):
            if RNG.random() < 0.7:
                s[k] = random_schema(depth - 1)
        return s
    return {"not": random_schema(0)}


def random_value(depth):
    kind = RNG.randrange(8 if depth > 0 else 6)
    if kind == 0:
        return RNG.choice([None, True, False])
    if kind in (1, 2):
        return RNG.choice([0, 1, 2, 3, 5, 7, 10, -1, 12, 100, 1.5, -2.5, 0.25, 2.0, 30])
    if kind in (3, 4, 5):
        return RNG.choice(WORDS + ["abc", "x1", "hello", "ABC", "12", "cd", "#00ff00", "2024-01-31", "1.2.3.4", "xyy"])
    if kind == 6:
        return [random_value(depth - 1) for _ in range(RNG.randrange(0, 4))]
    return {RNG.choice(WORDS + ["x1", "z"]): random_value(depth - 1) for _ in range(RNG.randrange(0, 4))}


def member(schema, depth=3):
    """A guess at a member, so that instances come near; its verdict is computed."""
    if isinstance(schema, bool) or not schema or depth < 0 or RNG.random() < 0.05:
        return random_value(1)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema and schema["enum"]:
        return RNG.choice(schema["enum"])
    for k in ("anyOf", "oneOf", "allOf"):
        if k in schema:
            if k == "allOf":
                parts = [member(p, depth - 1) for p in schema[k]]
                if parts and all(isinstance(p, dict) for p in parts):
                    return {a: b for p in parts for a, b in p.items()}
                return RNG.choice(parts) if parts else random_value(1)
            return member(RNG.choice(schema[k]), depth - 1)
    if "if" in schema:
        return member(schema[RNG.choice([k for k in ("if", "then", "else") if k in schema])], depth - 1)
    t = schema.get("type")
    if isinstance(t, list):
        t = RNG.choice(t)
    if t == "object":
        v = {}
        for name, sub in schema.get("properties", {}).items():
            if name in schema.get("required", []) or RNG.random() < 0.5:
                v[name] = member(sub, depth - 1)
        if RNG.random() < 0.3:
            v[RNG.choice(WORDS + ["x1", "z9"])] = random_value(1)
        return v
    if t == "array":
        v = [member(s, depth - 1) for s in schema.get("prefixItems", [])]
        for _ in range(RNG.randrange(0, 4)):
            v.append(member(schema.get("items", True), depth - 1))
        return v
    if t in ("integer", "number"):
        low = schema.get("minimum", schema.get("exclusiveMinimum", 0))
        return RNG.choice([low, int(low) + 1, int(low) + 2, int(low) + 6, 0, int(low) - 1])
    if t == "boolean":
        return RNG.choice([True, False])
    if t == "null":
        return None
    return random_value(1)


def main():
    lines = []

    def emit(schema, instances, refused=None):
        cls = validator_for(schema, default=jsonschema.Draft202012Validator) if not isinstance(schema, bool) else jsonschema.Draft202012Validator
        check = cls(schema, format_checker=cls.FORMAT_CHECKER)
        case = {"schema": schema}
        if refused:
            case["refused"] = True
        else:
            case["valid"], case["invalid"] = [], []
            seen = set()
            for v in instances:
                text = json.dumps(v, sort_keys=True)
                if text in seen:
                    continue
                seen.add(text)
                case["valid" if check.is_valid(v) else "invalid"].append(v)
        lines.append(json.dumps(case, separators=(",", ":")))

    for schema, instances in HAND:
        emit(schema, instances)
    for schema in REFUSED:
        emit(schema, [], refused=True)
    made = 0
    while made < 520:
        schema = random_schema(3)
        if isinstance(schema, bool) or len(json.dumps(schema)) > 1200:
            continue
        instances = [member(schema) for _ in range(8)] + [random_value(2) for _ in range(4)]
        emit(schema, instances)
        made += 1
    print("\n".join(lines))


if __name__ == "__main__":
    main()
