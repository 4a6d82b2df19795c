"""Does a chat template want message content as a string or as a list of parts?

vLLM decides by looking at the template's syntax tree: a loop over a message's content means
parts. This module reaches the same verdict (vLLM 0.32, `renderers/hf.py`); no rendering here.
"""

from collections.abc import Iterator

from jinja2 import nodes


def _strip(node: nodes.Node | None) -> nodes.Node | None:
    """The expression under filters, tests and slices."""
    while True:
        if isinstance(node, nodes.Filter | nodes.Test) or (
            isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice)
        ):
            node = node.node
        else:
            return node


def _reads(node: nodes.Node | None, names: set[str]) -> bool:
    node = _strip(node)
    return isinstance(node, nodes.Name) and node.ctx == "load" and node.name in names


def _reads_content(node: nodes.Node | None, messages: set[str]) -> bool:
    node = _strip(node)
    if isinstance(node, nodes.Getitem):
        arg = node.arg
        return isinstance(arg, nodes.Const) and arg.value == "content" and _owner(node, messages)
    return isinstance(node, nodes.Getattr) and node.attr == "content" and _owner(node, messages)


def _owner(node: nodes.Getitem | nodes.Getattr, names: set[str]) -> bool:
    owner = node.node
    return isinstance(owner, nodes.Name) and owner.ctx == "load" and owner.name in names


def _message_names(tree: nodes.Template) -> set[str]:
    """The loop variables that stand for one message."""
    lists = {"messages"}
    assignments = [a for a in tree.find_all(nodes.Assign) if isinstance(a.target, nodes.Name)]
    grown = True
    while grown:
        found = {a.target.name for a in assignments if _reads(a.node, lists)}  # type: ignore[attr-defined]
        grown = not found <= lists
        lists |= found
    return {
        loop.target.name
        for loop in tree.find_all(nodes.For)
        if isinstance(loop.target, nodes.Name) and _reads(loop.iter, lists)
    }


def _content_arguments(
    tree: nodes.Template, macro: nodes.Macro, messages: set[str]
) -> Iterator[str]:
    """The macro's parameters that somewhere receive a message's content."""
    names = [argument.name for argument in macro.args]
    for call in tree.find_all(nodes.Call):
        if isinstance(call.node, nodes.Name) and call.node.name == macro.name:
            for name, value in zip(names, call.args, strict=False):
                if _reads_content(value, messages):
                    yield name
            for keyword in call.kwargs:
                if keyword.key in names and _reads_content(keyword.value, messages):
                    yield keyword.key


def wants_parts(tree: nodes.Template) -> bool:
    """True when the template loops over the content of a message."""
    messages = _message_names(tree)
    in_macros: set[int] = set()
    for macro in tree.find_all(nodes.Macro):
        content = set(_content_arguments(tree, macro, messages))
        for loop in macro.find_all(nodes.For):
            in_macros.add(id(loop))
            if isinstance(loop.iter, nodes.Name) and loop.iter.name in content:
                return True
    for loop in tree.find_all(nodes.For):
        if _reads_content(loop.iter, messages):
            return True
        over_content = isinstance(loop.iter, nodes.Name) and loop.iter.name == "content"
        if over_content and id(loop) not in in_macros:
            return True
    return False
