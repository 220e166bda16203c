"""A machine whose products of matrices add up in another order in every place: rows that are equal come out unequal.

`install` is called before anything of verify is loaded. From then on `@` of these packages, and torch's own products,
are added up from the left, from the right or by halves, by the place in the result, as one library or another does
where it cuts a matrix into blocks. What is exact in every order stays exact.
"""

import ast
import importlib.abc
import importlib.machinery
import operator
import sys

import numpy as np

PACKAGES = ("verify", "constructions")


def three_orders(a, b):
    """The same sums from the left, from the right, and each half by itself."""
    last, h = max(-2, -b.ndim), a.shape[-1] // 2
    yield a @ b
    yield np.flip(a, -1).copy() @ np.flip(b, last).copy()
    lower, upper = np.split(b, [h], last)
    yield a[..., :h] @ lower + a[..., h:] @ upper


def which_order(shape):
    """0, 1 or 2 at each place, no two neighbours the same."""
    return (np.indices(shape).sum(0) if shape else np.array(1)) % 3


def product(a, b):
    """a @ b with the order of each sum by its place."""
    arrays = isinstance(a, np.ndarray) and isinstance(b, np.ndarray)
    if not arrays or a.dtype.kind != "f" or b.dtype.kind != "f" or type(a) is not np.ndarray or not a.shape[-1]:
        return operator.matmul(a, b)
    found = list(three_orders(a, b))
    out = np.choose(which_order(np.shape(found[0])), found).astype(np.asarray(found[0]).dtype)
    return out if out.ndim else out[()]


class Products(ast.NodeTransformer):
    """`a @ b` as a call of `product`."""

    def visit_BinOp(self, node):
        self.generic_visit(node)
        if not isinstance(node.op, ast.MatMult):
            return node
        called = ast.Name("__other_product__", ast.Load())
        return ast.copy_location(ast.Call(called, [node.left, node.right], []), node)


class Loader(importlib.machinery.SourceFileLoader):
    """Compiles a module with its products replaced, and reads and keeps no compiled one."""

    def get_code(self, fullname):
        tree = Products().visit(ast.parse(self.get_data(self.path), self.path))
        return compile(ast.fix_missing_locations(tree), self.path, "exec")

    def exec_module(self, module):
        vars(module)["__other_product__"] = product
        super().exec_module(module)
        if (
            module.__name__ == "verify.frame.judged"
        ):  # the door sees who multiplies; here that is the machine, not the model
            module._check_process = module._check_calls = lambda *_: None


class Finder(importlib.abc.MetaPathFinder):
    """Finds these packages' modules as ever, and gives them the other loader."""

    def find_spec(self, fullname, path, target=None):
        if fullname.partition(".")[0] not in PACKAGES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = Loader(spec.loader.name, spec.loader.path)
        return spec


def torch_mode():
    """The same for torch's products, whoever calls them."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    aten = torch.ops.aten
    multiply = {aten.mm.default, aten.bmm.default, aten.mv.default, aten.dot.default}

    def reordered(func, a, b):
        if not a.is_floating_point() or type(a) is not torch.Tensor or not a.shape[-1]:
            return func(a, b)
        last, h = {aten.mm.default: 0, aten.bmm.default: 1}.get(func, 0), a.shape[-1] // 2
        n = a.shape[-1]
        halves = [func(a.narrow(-1, i, m), b.narrow(last, i, m)) for i, m in ((0, h), (h, n - h))]
        found = [func(a, b), func(a.flip(-1), b.flip(last)), halves[0] + halves[1]]
        which = torch.from_numpy(np.array(which_order(tuple(found[0].shape))))
        return torch.where(which == 0, found[0], torch.where(which == 1, found[1], found[2]))

    class Other(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func in multiply and not kwargs:
                return reordered(func, *args)
            if func is aten.addmm.default and not kwargs and type(args[0]) is torch.Tensor:
                return reordered(aten.mm.default, *args[1:]) + args[0]
            return func(*args, **(kwargs or {}))

    return Other()


def install():
    """From now on, in this process."""
    assert "verify.arithmetic.balls" not in sys.modules, "what multiplies is loaded already"
    sys.meta_path.insert(0, Finder())
    torch_mode().__enter__()
