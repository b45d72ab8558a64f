#!/usr/bin/env python3
"""The table kernel x driver x hook of docs/operations.md: collected by `run`, put in place by `table.py FILE`."""
import json
import os
import sys

BEGIN = "<!-- made by tests/kernels/table.py: begin -->\n"
END = "<!-- made by tests/kernels/table.py: end -->\n"
# Key in a guest's rows, heading.
COLUMNS = {"taken": "`hook auto` takes", "auto": "`auto`", "tc": "`tc`", "xdp": "`xdp`", "bridge": "Kernel bridge", "traffic": "Traffic",
           "tree": "Spanning tree", "neighbours": "Bond, 802.1Q"}


class Results:
    """What the guests have found, in this run and in earlier ones with the same cache: of each kernel and driver the newest."""

    def __init__(self, cache):
        self.json, self.markdown = os.path.join(cache, "table.json"), os.path.join(cache, "table.md")
        self.rows = {}
        if os.path.exists(self.json):
            with open(self.json, encoding="utf-8") as file:
                self.rows = json.load(file)

    def add(self, kernel, nic, lines):
        """Takes the rows of a guest: the JSON objects of its script."""
        row = self.rows.setdefault(kernel, {}).setdefault(nic, {})
        for line in lines:
            if line.startswith("{"):
                row.update(json.loads(line))

    def text(self):
        heads = ["Kernel", "Driver", *COLUMNS.values()]
        text = f"| {' | '.join(heads)} |\n{'|---' * len(heads)}|\n"
        for kernel, nic in sorted((kernel, nic) for kernel, nics in self.rows.items() for nic in nics):
            row = self.rows[kernel][nic]
            cells = [kernel, nic, *(row.get(key, "-") for key in COLUMNS)]
            text += "| " + " | ".join(str(cell).replace("|", "/") for cell in cells) + " |\n"
        return text

    def write(self):
        with open(self.json, "w", encoding="utf-8") as file:
            json.dump(self.rows, file)
        with open(self.markdown, "w", encoding="utf-8") as file:
            file.write(self.text())


def main():
    """Puts a table into docs/operations.md."""
    if len(sys.argv) != 2:
        sys.exit("usage: table.py FILE   (the table that `make test-kernels NICS=...` has written)")
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    page = os.path.join(root, "docs/operations.md")
    with open(sys.argv[1], encoding="utf-8") as file:
        made = file.read()
    with open(page, encoding="utf-8") as file:
        text = file.read()
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    with open(page, "w", encoding="utf-8") as file:
        file.write(before + BEGIN + made + END + after)


if __name__ == "__main__":
    main()
