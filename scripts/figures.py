"""Print the shape of the product: lines, modules, repeated names, complexity, large classes. It only reads."""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path("src/stepkeep")
COMPLEX, MANY_METHODS, MANY_MODULES = 15, 30, 25


def package(path: Path) -> str:
    inside = path.relative_to(ROOT).parts
    return inside[0] if len(inside) > 1 else "stepkeep"


def decisions(function: ast.AST) -> int:
    """The number of ways through a function, and through those inside it."""
    count = 1
    for node in ast.walk(function):
        match node:
            case ast.BoolOp(values=values):
                count += len(values) - 1
            case ast.comprehension(ifs=conditions):
                count += 1 + len(conditions)
            case ast.If() | ast.IfExp() | ast.For() | ast.AsyncFor() | ast.While() | ast.ExceptHandler() | ast.Assert():
                count += 1
            case ast.match_case(pattern=ast.MatchAs(pattern=None)):
                pass
            case ast.match_case():
                count += 1
    return count


def imported(path: Path, tree: ast.Module, names: set[str]) -> set[str]:
    """The modules of the product that a module imports when it is loaded."""
    found: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
    return found & names


def longest_chain(edges: dict[str, set[str]]) -> int:
    @cache
    def depth(name: str) -> int:
        return 1 + max((depth(other) for other in edges[name] if other != name), default=0)

    return max(depth(name) for name in edges)


def report() -> Iterator[str]:
    trees = {path: ast.parse(path.read_text()) for path in sorted(ROOT.rglob("*.py"))}
    names = {path: ".".join(path.relative_to("src").with_suffix("").parts).removesuffix(".__init__") for path in trees}
    known = set(names.values())
    classes: Counter[str] = Counter()
    large: list[str] = []
    mappings: Counter[str] = Counter()
    functions: Counter[str] = Counter()
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                classes[node.name] += 1
                methods = sum(isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef) for item in node.body)
                if methods > MANY_METHODS:
                    large.append(f"{node.name} {methods}")
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns is not None:
                mappings[package(path)] += ast.unparse(node.returns) == "dict[str, Any]"
                functions[package(path)] += decisions(node) > COMPLEX
    packages = sorted({package(path) for path in trees})
    yield "| package | lines | modules | dict[str, Any] returned | complex functions |"
    yield "|---|---:|---:|---:|---:|"
    for name in packages:
        own = [path for path in trees if package(path) == name]
        lines = sum(len(path.read_text().splitlines()) for path in own)
        yield f"| {name} | {lines:,} | {len(own)} | {mappings[name]} | {functions[name]} |"
    lines = sum(len(path.read_text().splitlines()) for path in trees)
    yield f"| **all** | **{lines:,}** | **{len(trees)}** | **{mappings.total()}** | **{functions.total()}** |"
    yield ""
    repeated = sorted(name for name, count in classes.items() if count > 1)
    folders = Counter(path.parent for path in trees)
    crowded = [f"{folder.relative_to(ROOT)} {count}" for folder, count in folders.items() if count > MANY_MODULES]
    yield f"Class names defined twice or more ({len(repeated)}): {', '.join(repeated)}"
    yield f"Classes above {MANY_METHODS} methods ({len(large)}): {', '.join(large)}"
    yield f"Folders above {MANY_MODULES} modules ({len(crowded)}): {', '.join(crowded)}"
    edges = {names[path]: imported(path, tree, known) for path, tree in trees.items()}
    yield f"Longest chain of imports: {longest_chain(edges)}"


if __name__ == "__main__":
    sys.setrecursionlimit(10_000)
    sys.stdout.write("".join(f"{line}\n" for line in report()))
