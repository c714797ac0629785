"""The public headers, read into ctypes: every function, struct and enumerator that choir.h declares.

Nothing is listed by hand, so a new function of a header is callable at once. The headers are regular: typedefs
of structs and enums, prototypes that end in ");", options passed by value.
"""
import ctypes as c
import os
import re

SCALARS = {"int": c.c_int, "int64_t": c.c_int64, "uint64_t": c.c_uint64, "uint32_t": c.c_uint32,
           "uint8_t": c.c_uint8, "size_t": c.c_size_t, "float": c.c_float, "double": c.c_double,
           "bool": c.c_bool, "char": c.c_char}


class Header:
    """functions: name -> (type of result as text, [ctypes of arguments], [their types as text])."""

    def __init__(self, folder):
        text = "".join(self.clean(os.path.join(folder, name)) for name in self.included(folder))
        self.enumerators, self.structs, self.functions = {}, {}, {}
        self.types = dict(SCALARS)
        self.dtypes(folder)
        text = re.sub(r"\benum\s*\w*\s*\{([^{}]*)\}\s*(\w*)", self.enum, text)
        for name in re.findall(r"typedef int (\w+);", text):
            self.types[name] = c.c_int
        text = re.sub(r"(?:typedef )?struct (\w+)\s*\{([^{}]*)\}[^;]*;", self.struct, text)
        for result, star, name, arguments in re.findall(
                r"((?:const )?\b\w+)\s+(\**)(choir_\w+)\(([^()]*)\)\s*(?:__attribute__[^;]*)?;", text):
            if result != "typedef":
                self.function(result + (" *" if star else ""), name, arguments)

    @staticmethod
    def included(folder):
        with open(os.path.join(folder, "choir.h")) as file:
            return re.findall(r"#include <choir/(\w+\.h)>", file.read())

    @staticmethod
    def clean(path):
        with open(path) as file:
            text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", file.read(), flags=re.S)
        text = re.sub(r"^#(?:[^\n]*\\\n)*[^\n]*", "", text, flags=re.M)
        return re.sub(r'extern "C" \{|__attribute__\(\(.*?\)\)\)?', "", text)

    def dtypes(self, folder):
        with open(os.path.join(folder, "dtype.h")) as file:
            names = re.findall(r'X\((\w+), "\w+", \d+, "\w+"\)', file.read())
        self.enumerators.update({"CHOIR_" + name: i for i, name in enumerate(names)})
        self.types["choir_dtype"] = self.types["choir_status"] = c.c_int

    def enum(self, match):
        value = 0
        for entry in match.group(1).split(","):
            name, _, given = entry.partition("=")
            if not re.fullmatch(r"\s*\w+\s*", name):
                continue
            if given.strip():  # a number, or a power of two as 1 << 20
                base, _, shift = given.partition("<<")
                value = int(base, 0) << int(shift or "0", 0)
            self.enumerators[name.strip()] = value
            value += 1
        return "int " + (match.group(2) or "unnamed")

    def field(self, line):
        kind, names = re.fullmatch(r"\s*(?:const\s+)?(?:struct\s+)?(\w+)\s+(.*)", line, re.S).groups()
        for name in names.split(","):
            star, name, size = re.fullmatch(r"\s*(\**)\s*(?:const\s+)?(\w+)(?:\[(\w+)\])?\s*", name).groups()
            type_ = c.c_void_p if star else self.types[kind]
            if size:
                type_ = type_ * int(self.enumerators.get(size, size))
            yield name, type_

    def struct(self, match):
        name, body = match.groups()
        # function pointers, which no test sets, and pointers to pointers
        body = re.sub(r"\w+ \**\(\*(\w+)\)\([^;]*\);", r"void *\1;", body)
        body = re.sub(r"\*\s*const\s*\*", "**", body)
        try:
            fields = [f for line in body.split(";") if line.strip() for f in self.field(line)]
        except (KeyError, AttributeError):  # by a type of another header, or an opaque one
            return ""
        self.types[name] = self.structs[name] = type(name, (c.Structure,), {"_fields_": fields})
        return ""

    def function(self, result, name, arguments):
        texts = [] if arguments.strip() in ("", "void") else [a.strip() for a in arguments.split(",")]
        types = []
        for text in texts:
            word = re.sub(r"\b(const|struct)\b", "", text).split()[0].rstrip("*")
            if "*" in text or "[" in text:
                types.append(c.c_char_p if "const char *" in text and "**" not in text else c.c_void_p)
            elif word in self.types:
                types.append(self.types[word])
            else:
                return  # has an argument type that tests do not need
        self.functions[name] = (result, types, texts)
