"""Runs examples/python/first_steps.ipynb, and looks at what it shows."""

import json
from xml.etree import ElementTree

import brought
import pytest

NOTEBOOK = brought.TREE / "examples" / "python" / "first_steps.ipynb"


def test_the_file_has_no_outputs():
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert "widgets" not in notebook["metadata"]
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [] and cell["execution_count"] is None, cell["source"]


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """Returns each code cell's source and outputs, after all of them ran."""
    brought.need("torch", "nbclient", "ipykernel")
    import nbformat
    from jupyter_client.manager import KernelManager
    from nbclient import NotebookClient

    notebook = nbformat.read(NOTEBOOK, as_version=4)
    manager = KernelManager()  # of this interpreter
    client = NotebookClient(notebook, km=manager, timeout=60)
    client.execute(env=brought.environment(tmp_path_factory.mktemp("installed")))
    return [(cell.source, cell.outputs) for cell in notebook.cells if cell.cell_type == "code"]


def outputs_of(shown, part):
    [outputs] = [outputs for source, outputs in shown if part in source]
    return outputs


def html_of(shown, part):
    return outputs_of(shown, part)[-1]["data"]["text/html"]


def pictures(page):
    return [ElementTree.fromstring(part[: part.index("</svg>")] + "</svg>")
            for part in ("<svg" + rest for rest in page.split("<svg")[1:])]


def test_cells_show_what_they_promise(shown):
    report = html_of(shown, "weft.torch.report()")
    assert "<td>forward</td>" in report and "<td>backward</td>" in report
    assert "torch computes" not in report
    assert len(pictures(html_of(shown, "step.plan()"))) == 2
    page = html_of(shown, "plans = weft.plan(")
    assert "<td>h100</td>" in page and "<td>rtx4090</td>" in page and len(pictures(page)) == 2
    [right] = outputs_of(shown, "right = ")
    assert float(right["text"].split()[0]) > 80


def test_a_loop_is_one_display(shown):
    loops = [outputs for source, outputs in shown if "weft.progress" in source]
    assert len(loops) == 2
    for [output] in loops:
        assert output["data"]["text/plain"].startswith("128/128")
        [picture] = pictures(output["data"]["text/html"])
        assert picture.findall("{*}polyline")


def test_nothing_is_written_beside_the_outputs(shown):
    assert not [o for _, outputs in shown for o in outputs if o.get("name") == "stderr"]
