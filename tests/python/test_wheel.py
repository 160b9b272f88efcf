"""The wheel of `make wheel`: in a fresh environment, in a bare root, and beside other libraries."""

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import brought
import pytest

pytestmark = pytest.mark.slow

TREE = Path(__file__).resolve().parents[2]
# Dependencies of the wheel, which bare roots take from this environment.
DEPENDENCIES = ("numpy", "numpy.libs", "ml_dtypes")
# Debian's packages with the files that Python, NumPy and the wheel need.
DEBIAN = (
    "libc6",
    "libgcc-s1",
    "libstdc++6",
    "zlib1g",
    "libexpat1",
    "libffi8",
    "python3.11-minimal",
    "libpython3.11-minimal",
    "libpython3.11-stdlib",
)

# What each library computes of A; EXPECTED is A @ A, whose elements are whole numbers.
COMPUTE = {
    "weft": """
        x = weft.asarray(A)
        assert (weft.matmul(x, x).numpy() == EXPECTED).all()
    """,
    "numpy": "assert (A @ A == EXPECTED).all()",
    "torch": """
        x = torch.from_numpy(A)
        assert (torch.matmul(x, x).numpy() == EXPECTED).all()
    """,
    "sklearn": """
        from sklearn.cluster import KMeans
        from sklearn.metrics.pairwise import linear_kernel
        KMeans(2, n_init=1, random_state=0).fit(A)  # by OpenMP
        assert (linear_kernel(A, A.T) == EXPECTED).all()
    """,
    "onnxruntime": """
        def field(number, value):  # of protobuf, length-delimited or a small integer
            if isinstance(value, int):
                return bytes([number << 3, value])
            value = value.encode() if isinstance(value, str) else value
            return bytes([number << 3 | 2]) + bytes([len(value)]) + value
        def named(name):  # a ValueInfoProto of float[512, 512], without its extents
            return field(1, name) + field(2, field(1, field(1, 1)))
        node = field(1, "a") + field(1, "a") + field(2, "y") + field(4, "MatMul")
        graph = field(1, node) + field(2, "g") + field(11, named("a")) + field(12, named("y"))
        model = field(1, 8) + field(7, graph) + field(8, field(2, 13))
        session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        assert (session.run(None, {"a": A})[0] == EXPECTED).all()
    """,
}


def wheel():
    found = sorted((TREE / "build/wheel").glob("weft-*.whl"), key=lambda path: path.stat().st_mtime)
    if not found:
        pytest.skip("there is no build/wheel/weft-*.whl: make wheel")
    return found[-1]


def site_packages():
    import numpy

    return Path(numpy.__file__).parents[1]


def run(command, **options):
    """Runs a command that must succeed, and returns what it prints."""
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300, **options
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A fresh environment with the wheel, where all else is that of this environment."""
    folder = tmp_path_factory.mktemp("venv")
    run([sys.executable, "-m", "venv", "--without-pip", folder])
    python = folder / "bin/python"
    run(
        [
            sys.executable,
            "-m",
            "pip",
            "--disable-pip-version-check",
            "--python",
            python,
            "install",
            "-q",
            "--no-deps",
            "--no-index",
            wheel(),
        ]
    )
    own = next((folder / "lib").glob("python*/site-packages"))
    (own / "others.pth").write_text(f"{site_packages()}\n")
    return python


@pytest.fixture
def environment(tmp_path):
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    return {
        **kept,
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "WEFT_THREADS": "4",
        "OMP_NUM_THREADS": "4",
    }


def run_program(program, environment, folder):
    """Runs python -m weft outside of the tree, where it finds the recipes of the wheel."""
    version = run([*program, "--version"], env=environment, cwd=folder)
    assert version.startswith("weft ")
    plan = run([*program, "plan", "addition"], env=environment, cwd=folder)
    assert "arena" in plan
    return version


def test_program_in_fresh_environment(installed, environment, tmp_path):
    version = run_program([installed, "-m", "weft"], environment, tmp_path)
    package = run(
        [installed, "-c", "import weft; print(weft.__version__, weft.__file__)"],
        env=environment,
        cwd=tmp_path,
    ).split()
    assert version.split()[1].startswith(package[0])
    assert "site-packages" in package[1] and str(TREE / "python") not in package[1]
    stubs = {path.stem for path in Path(package[1]).parent.glob("_weft/*.pyi")}
    assert stubs == {"__init__", "_data", "_io", "_models", "_nn", "_train"}


# Each line has the type that a reader expects, which mypy --strict finds in the installed package.
TYPED = """
import numpy as np

import weft

w = weft.Variable("w", "f32", (784, 10))
optimizer = weft.AdamW([w], lr=1e-3)


@weft.compile
def train(images: weft.Tensor, labels: weft.Tensor) -> weft.Tensor:
    loss = weft.cross_entropy(images @ w, labels)
    optimizer.step(weft.grad(loss, [w]))
    return loss


@weft.compile(mode="eval")
def predict(images: weft.Tensor) -> weft.Tensor:
    return (images @ w).argmax(-1)


images, labels = np.random.rand(32, 784).astype("f4"), np.arange(32) % 10
run = weft.progress(range(3))
for number in run:
    half: int = number // 2
    run.show(loss=train(images, labels).item())
plan = train.plan(images, labels, on="h100")
seconds: float = plan.seconds
svg: str = plan.memory_svg()
live: dict[str, list[float]] = plan.live_bytes
right: float = (predict(images) == labels).sum().item()
x = weft.rand((4, 6))
part: weft.Tensor = x[1:, None].sum(1, keepdims=True) + 2 * x.T.softmax(-1).max()
values, indices = x.topk(2)
array: np.ndarray = values.numpy()
memory: int = weft.Device("h100").memory_bytes
with weft.DeviceScope("cpu"):
    total: float = x.sum().item()
shape: tuple[int, ...] = weft.asarray(images).shape
try:
    x @ weft.rand((3, 3))
except weft.UsageError as error:
    code: int = error.exit_code
"""


# The same for a program of modules, data and files.
TYPED_MODULES = """
import numpy as np

import weft
from weft import nn, optim


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))
        self.norm = nn.LayerNorm(8)
        self.head = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 3))
        self.scale = nn.Parameter((8,), nn.Init.constant(1))

    def forward(self, x: weft.Tensor) -> weft.Tensor:
        for block in self.blocks:
            x = x + block(x)
        y: weft.Tensor = self.head(self.norm(x) * self.scale)
        return y


net = Mlp()
optimizer = optim.AdamW(net.parameters(), lr=optim.cosine(1e-3, total=100, warmup=10))


@weft.compile
def train(inputs: weft.Tensor, labels: weft.Tensor) -> weft.Tensor:
    loss = weft.cross_entropy(net(inputs), labels)
    optimizer.step(weft.grad(loss, net.parameters()))
    return loss


inputs, labels = np.random.rand(64, 8).astype("f4"), np.arange(64) % 3
for x, y in weft.data.Loader((inputs, labels), batch_size=32, shuffle=True):
    loss: float = train(x, y).item()
names: list[str] = [name for name, _ in net.named_parameters()]
net.freeze("head.*")
count: int = net.parameter_count()
state: dict[str, weft.Tensor] = net.state_dict()
net.load_state_dict({"norm.bias": np.zeros(8, "f4")}, strict=False)
weft.io.save(net, "net.safetensors")
missing: list[str] = weft.io.load(net, "net.safetensors", ignore=["head.*"]).missing
shape: tuple[int, ...] = weft.io.Safetensors("net.safetensors")["norm.bias"].shape
weft.io.write_npy("inputs.npy", inputs)
array: weft.Tensor = weft.io.read_npy("inputs.npy")
with weft.ModeScope("eval"):
    total: float = net(array).sum().item()
model = weft.models.make("mlp", kind="features", input=(8,), classes=3)
logits: weft.Tensor = model(array)


def not_run() -> None:
    for images, classes in weft.data.mnist("train").batches(128, shuffle=True):
        print(images.shape, classes.shape)
    result: weft.TrainResult = weft.train("mnist", {"optimizer.lr": 1e-2}, quiet=True)
    plan = weft.plan("mnist", on="h100")
    text: str = weft.models.load(result.run_folder).generate("abc", max_new_tokens=3)
    texts: list[str] = weft.models.load("folder").generate(["abc", "d"], temperature=0)
    for piece in weft.models.load("folder").stream("abc"):
        text += piece
    weft.export(net, inputs, "net.onnx")
    print(plan, texts)
"""


# The same for a program of torch.
TYPED_TORCH = """
import torch
from torch import nn
from torch.nn import functional as F

import weft

model = nn.Sequential(nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
x, y = torch.randn(8, 784), torch.randint(0, 10, (8,))
step = weft.torch.step(model, F.cross_entropy, optimizer, clip_norm=1.0, offload=[])
loss: torch.Tensor = step(x, y)
planned: int = step.plan().memory_bytes
plans = weft.plan(model, x, loss=lambda output: F.cross_entropy(output, y), on=["h100", "cpu"])
seconds: float = plans["h100"].seconds
fits: bool = all(plan.fits for plan in plans)
remedies: list[tuple[str, float]] = plans["h100"].remedies
live: dict[str, list[float]] = plans["cpu"].live_bytes
weft.export(model, x, "net.onnx")
batch = weft.torch.buckets([64, 128], pad={"labels": -100})({"ids": torch.ones(8, 100)})
graphs: int = len(weft.torch.report().graphs)
reasons: dict[str, int] = weft.torch.report().graph_breaks


def not_run() -> None:
    program: nn.Module = weft.torch.load("net.pt2")
    callback = weft.torch.trainer_callback(precision="bf16")
    recipe = weft.plan({"name": "letters"}, {"train.steps": 3}, on="h100")
    keys: list[str] = list(recipe)
    tables = weft.plan("mnist", on=["h100", "cpu"])
    print(program, callback, keys, tables["h100"])
"""
# A line that mypy refuses behind each program, and what it says.
WRONG = [
    (TYPED, "text: str = train.plan(images, labels).arena_bytes", '"int".*"str"'),
    (TYPED_MODULES, "count = net.parameters()", r'"list\[Variable\]".*"int"'),
    (TYPED_TORCH, "weft.torch.step(model, F.cross_entropy, optimizer, clip=1)", 'argument "clip"'),
    (TYPED_TORCH, 'weft.torch.step(model, "cross_entropy", optimizer)', '"str".*Callable'),
    (TYPED_TORCH, "text: str = step(x, y)", '"Tensor".*"str"'),
    (TYPED_TORCH, 'text: str = plans["h100"].memory_bytes', '"int".*"str"'),
    (TYPED_TORCH, "weft.plan(model, x, on=3)", "No overload"),
    (TYPED_TORCH, 'weft.export(3, x, "net.onnx")', '"int".*Module'),
]


PROGRAMS = {"library": TYPED, "modules": TYPED_MODULES, "torch": TYPED_TORCH}


@pytest.mark.parametrize("right", PROGRAMS.values(), ids=PROGRAMS)
def test_types_of_a_program(installed, environment, tmp_path, right):
    brought.need("mypy", *(["torch"] if "import torch" in right else []))
    program = tmp_path / "program.py"
    program.write_text(right)
    cache = installed.parents[1] / "mypy"  # of all programs
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", cache]
    run([*command, "--python-executable", installed, program], env=environment, cwd=tmp_path)
    wrong = tmp_path / "wrong.py"
    for wrong_line, message in [rest for of, *rest in WRONG if of is right]:
        wrong.write_text(f"{right}{wrong_line}\n")
        with pytest.raises(AssertionError, match=message):
            run([*command, "--python-executable", installed, wrong], env=environment, cwd=tmp_path)
    run([installed, program], env=environment, cwd=tmp_path)


def test_metadata(installed, environment):
    """The dependencies are met, and torch finds the backend."""
    script = """
        from importlib import metadata
        [entry] = metadata.entry_points(group="torch_dynamo_backends", name="weft")
        assert entry.value == "weft.torch:backend", entry
        required = metadata.requires("weft")
        assert [each for each in required if "extra" not in each] == ["numpy>=1.26", "ml_dtypes>=0.5"]
        assert metadata.metadata("weft")["License-Expression"] == "Apache-2.0"
        licenses = {file.name for file in metadata.files("weft") if "licenses" in str(file)}
        assert {"LICENSE", "nanobind.txt", "llvm-19-dev.txt", "libdnnl2.txt"} <= licenses, licenses
    """
    run([installed, "-c", textwrap.dedent(script)], env=environment)
    run([sys.executable, "-m", "pip", "--python", installed, "check"])


@pytest.mark.parametrize("number", [0, 1])
def test_examples_of_the_readme(installed, environment, tmp_path, number):
    example = (
        (TREE / "python/README.md").read_text().split("```python\n")[number + 1].split("```")[0]
    )
    if "import torch" in example:
        brought.need("torch")
    run([installed, "-c", example], env=environment, cwd=tmp_path)


def test_bare_root(environment, tmp_path):
    """The wheel runs where only glibc, libstdc++, zlib and Python are."""
    if os.geteuid() != 0:
        pytest.skip("only root can chroot")
    if "-cp311-" not in wheel().name or not Path("/usr/bin/python3.11").exists():
        pytest.skip("the bare root has Debian 12's Python 3.11, which takes a wheel for cp311")
    root = tmp_path / "root"
    copy_debian(root)
    packages = root / "packages"
    shutil.unpack_archive(wheel(), packages, "zip")
    for name in DEPENDENCIES:
        shutil.copytree(site_packages() / name, packages / name)
    program = ["chroot", root, "/usr/bin/python3.11", "-m", "weft"]
    environment = {"PATH": "/usr/bin:/usr/sbin", "PYTHONPATH": "/packages", "HOME": "/tmp"}
    run_program(program, environment, tmp_path)
    script = "import weft; print(weft.matmul(weft.ones((2, 3)), weft.ones((3, 2))).tolist())"
    assert run([*program[:3], "-c", script], env=environment) == "[[3.0, 3.0], [3.0, 3.0]]\n"


def copy_debian(root):
    """Copies the files of packages that are installed here to a root."""
    (root / "tmp").mkdir(parents=True)
    for name in ("lib", "lib64"):  # links to /usr in Debian
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    listed = run(["dpkg", "-L", *DEBIAN]).splitlines()
    for file in {Path(line) for line in listed if line.startswith("/")}:
        target = root / file.relative_to("/")
        if not file.is_file() or file.parts[1:3] == ("usr", "share"):
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, target)


def order_of(other, first):
    """Returns a program that imports two libraries in an order, and computes with both twice."""
    names = ("weft", other) if first == "weft" else (other, "weft")
    lines = [f"import {name}" for name in names] + [
        "import numpy, os",
        "A = (numpy.arange(512 * 512).reshape(512, 512) % 7).astype('f4')",
        "EXPECTED = (A.astype('i8') @ A.astype('i8')).astype('f4')",
        "threads = lambda: len(os.listdir('/proc/self/task'))",
    ]
    other_computes = textwrap.dedent(COMPUTE[other])
    return "\n".join(
        [
            *lines,
            other_computes,
            "before = threads()",
            textwrap.dedent(COMPUTE["weft"]),
            # weft's threads are those of its own team: OpenMP in oneDNN would start as many again.
            "assert threads() - before < weft.thread_count(), (before, threads())",
            other_computes,
            textwrap.dedent(COMPUTE["weft"]),
            "print('both')",
        ]
    )


@pytest.mark.parametrize("first", ["weft", "other"])
@pytest.mark.parametrize("other", ["numpy", "torch", "sklearn", "onnxruntime"])
def test_beside(installed, environment, tmp_path, other, first):
    if not (site_packages() / other).exists():
        brought.missing(other)
    assert run([installed, "-c", order_of(other, first)], env=environment, cwd=tmp_path) == "both\n"


@pytest.mark.parametrize("first", ["weft", "torch"])
def test_torch_compiles_with_weft(installed, environment, tmp_path, first):
    """torch.compile finds the backend by its name, whichever was imported first."""
    brought.need("torch")
    second = "torch" if first == "weft" else "weft"
    script = f"""
        import {first}, {second}, torch
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
        x = torch.rand(16, 64)
        expected = net(x)
        expected.sum().backward()
        gradient = net[0].weight.grad.clone()
        net.zero_grad()
        found = torch.compile(net, backend="weft")(x)
        found.sum().backward()
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(net[0].weight.grad, gradient)
        print("equal")
    """
    assert (
        run([installed, "-c", textwrap.dedent(script)], env=environment, cwd=tmp_path) == "equal\n"
    )


def test_the_stub_has_each_public_name(installed, environment):
    """Signatures that python/src/stubs.txt replaces have the arguments of the extension."""
    script = """
        import ast, pathlib, re, weft
        from weft import _weft
        stubs = pathlib.Path(weft.__file__).parent / "_weft"
        tree = ast.parse((stubs / "__init__.pyi").read_text())
        names = {node.name: node for node in tree.body if hasattr(node, "name")}
        public = {name for name in vars(_weft) if not name.startswith("_")}
        assert public <= set(names), public - set(names)
        for name in "_nn", "_io", "_data", "_models", "_train":
            said = {node.name for node in ast.parse((stubs / f"{name}.pyi").read_text()).body
                    if hasattr(node, "name")}
            public = {each for each in vars(getattr(_weft, name)) if not each.startswith("_")}
            assert public <= said, (name, public - said)
        for name in "Adam", "AdamW", "SGD":
            [init] = [each for each in names[name].body if each.name == "__init__"]
            signature = getattr(_weft, name).__init__.__doc__.splitlines()[0]
            said = re.findall(r"(?:\\(|, )(\\w+)(?=[:,])", signature)
            assert [each.arg for each in init.args.args] == said, (name, said)
    """
    run([installed, "-c", textwrap.dedent(script)], env=environment)
