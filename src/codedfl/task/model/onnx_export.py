"""A model as an ONNX graph, which other programs run without codedfl.

Numeric columns are one input ``inputs`` (float32, in the model's order); each text column is an input of its own. The
graph computes in float64, so that only the rounding of its inputs and scores to float32 is lost. Outputs are
``label`` (classification) and ``scores``: the decision values of each class, or the values of a regression.
"""

from typing import Any

import numpy as np
from jaxtyping import Float

from codedfl.errors import DataError, MissingExtraError
from codedfl.task.model.model import Model

TOLERANCE = 1e-5
"""Largest difference to the model's own scores, relative to the largest of them."""
_ROWS = 200
_OPSETS = {"": 17, "ai.onnx.ml": 3}
_IR_VERSION = 8


def checked_graph(model: Model) -> tuple[bytes, float]:
    """Return a model as ONNX, and its largest difference to the model on random rows, relative to the largest score.

    A graph whose difference exceeds :data:`TOLERANCE` is refused.
    """
    try:
        import onnx
        import onnxruntime
    except ModuleNotFoundError:
        raise MissingExtraError(
            "export needs onnx and onnxruntime; install them: pip install 'codedfl[export]'"
        ) from None
    model.refuse_filled_text("an ONNX graph")
    graph = _Graph(model).build()
    onnx.checker.check_model(graph)
    text = graph.SerializeToString()
    difference = _difference(model, onnxruntime.InferenceSession(text, providers=["CPUExecutionProvider"]))
    if not difference <= TOLERANCE:
        raise DataError(
            f"the ONNX graph differs from the model by {difference:.1e} of the largest score, more than {TOLERANCE:g}, "
            "because its inputs are single precision; subtract large constants from the columns and train again"
        )
    return text, difference


class _Graph:
    """Nodes and constants; intermediate values have numbers as names."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._nodes: list[Any] = []
        self._constants: list[Any] = []

    def build(self) -> Any:
        """Return the whole ONNX model."""
        from onnx import TensorProto, helper

        model = self._model
        numeric = [column.name for column in model.columns if not column.categories]
        texts = [column for column in model.columns if column.categories]
        given = [helper.make_tensor_value_info("inputs", TensorProto.FLOAT, [None, len(numeric)])] if numeric else []
        taken = [column.name for column in texts if column.name in ("inputs", "label", "scores")]
        if taken:
            raise DataError(f"the graph has a value of its own called {taken[0]!r}; rename that column and train again")
        given += [helper.make_tensor_value_info(column.name, TensorProto.STRING, [None, 1]) for column in texts]
        scores = self._scores()
        found = [
            helper.make_tensor_value_info("scores", TensorProto.FLOAT, [None, len(model.classes or model.targets)])
        ]
        self._add("Cast", [scores], output="scores", to=TensorProto.FLOAT)
        if model.classes:
            labels = np.array(model.classes)
            constant = self._constant(labels.astype(object) if labels.dtype.kind == "U" else labels)
            self._add("Gather", [constant, self._add("ArgMax", [scores], axis=1, keepdims=0)], output="label")
            kind = helper.np_dtype_to_tensor_dtype(np.dtype(object) if labels.dtype.kind == "U" else labels.dtype)
            found.insert(0, helper.make_tensor_value_info("label", kind, [None]))
        graph = helper.make_graph(self._nodes, "codedfl", given, found, self._constants)
        opsets = [helper.make_opsetid(domain, version) for domain, version in _OPSETS.items()]
        whole = helper.make_model(
            graph, opset_imports=opsets, ir_version=_IR_VERSION, producer_name="codedfl", producer_version=model.version
        )
        facts = {"inputs": ",".join(numeric), "targets": ",".join(model.targets), "scenario_id": model.scenario_id}
        helper.set_model_props(whole, facts)
        return whole

    def _constant(self, value: Any) -> str:
        from onnx import numpy_helper

        name = f"codedfl constant {len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def _add(self, kind: str, inputs: list[str], output: str = "", domain: str = "", **attributes: Any) -> str:
        from onnx import helper

        name = output or f"codedfl value {len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, inputs, [name], domain=domain, **attributes))
        return name

    def _inputs(self) -> tuple[str, list[int]]:
        """Return numbers followed by zeros and ones, and the place of each in the model's inputs."""
        from onnx import TensorProto

        parts, places, first = [], {True: list[int](), False: list[int]()}, 0
        for column in self._model.columns:
            places[not column.categories] += range(first, first + len(column.inputs))
            first += len(column.inputs)
            if column.categories:
                words = list(column.categories)
                found = self._add("OneHotEncoder", [column.name], domain="ai.onnx.ml", cats_strings=words, zeros=0)
                wide = self._constant(np.array([-1, len(column.categories)]))
                parts.append(self._add("Cast", [self._add("Reshape", [found, wide])], to=TensorProto.DOUBLE))
        if places[True]:
            parts.insert(0, self._add("Cast", ["inputs"], to=TensorProto.DOUBLE))
        return self._add("Concat", parts, axis=1), places[True] + places[False]

    def _scores(self) -> str:
        model, prepared = self._model, self._model.preparation
        value, order = self._inputs()
        theta = model.theta.astype(np.float64)
        if prepared is not None:
            if prepared.fill is not None:
                missing, fill = self._add("IsNaN", [value]), self._constant(prepared.fill[order])
                value = self._add("Where", [missing, fill, value])
            for kind, limit in (("Max", prepared.low), ("Min", prepared.high)):
                if limit is not None:
                    value = self._add(kind, [value, self._constant(limit[order])])
            value = self._add("Sub", [value, self._constant(prepared.shift[order])])
            value = self._add("Div", [value, self._constant(prepared.unit[order])])
        if model.features.kind == "rbf":
            # the weights of float32 are in turns, those of float64 in radians
            turn = 2 * np.pi if model.features.precision == "float32" else 1.0
            drawn = model.feature_map
            value = self._add("MatMul", [value, self._constant(drawn.weights[order].astype(np.float64) * turn)])
            value = self._add("Add", [value, self._constant(drawn.offset.astype(np.float64) * turn)])
            value = self._add("Cos", [value])
            theta = theta * np.sqrt(2 / drawn.dimension)
            order = list(range(drawn.dimension))
        shift = np.zeros(theta.shape[1])
        if prepared is not None:
            if prepared.feature_shift is not None:
                shift = -prepared.feature_shift @ model.theta
            if prepared.constant is not None:
                theta, shift = theta[:-1], shift + prepared.constant @ model.theta[-1:]
            theta, shift = theta * prepared.target_unit, shift * prepared.target_unit + prepared.target_shift
        if model.classes:  # as in Model.decision_function
            theta, shift = 2 * theta - theta.sum(axis=1, keepdims=True), 2 * shift - shift.sum()
        value = self._add("MatMul", [value, self._constant(theta[order])])
        return self._add("Add", [value, self._constant(shift)])


def _difference(model: Model, session: Any) -> float:
    """Compare graph and model on random rows in the ranges that the preparation tells, or from 0 to 1."""
    rows, given = _random_rows(model)
    scores = model.outputs(rows)
    found = session.run(None, given)
    if model.classes:
        scores = 2 * scores - scores.sum(axis=1, keepdims=True)
        near = np.sort(scores, axis=1)
        clear = near[:, -1] - near[:, -2] > 2 * TOLERANCE * np.abs(scores).max()
        if not np.array_equal(found[0][clear], model.predict(rows)[clear]):
            return np.inf
    return float(np.abs(found[-1] - scores).max() / (np.abs(scores).max() or 1.0))


def _random_rows(model: Model) -> tuple[dict[str, Any], dict[str, Any]]:
    rng, prepared, first = np.random.default_rng(0), model.preparation, 0
    rows: dict[str, Any] = {}
    numbers: list[Float[np.ndarray, "n"]] = []
    given: dict[str, Any] = {}
    for column in model.columns:
        if column.categories:
            rows[column.name] = rng.choice(np.array(column.categories, dtype=object), _ROWS)
            given[column.name] = rows[column.name][:, None]
        else:
            low, high = (
                (0.0, 1.0) if prepared is None else prepared.shift[first] + np.array([-3, 3]) * prepared.unit[first]
            )
            rows[column.name] = rng.uniform(low, high, _ROWS)
            numbers.append(rows[column.name])
        first += len(column.inputs)
    if numbers:
        given["inputs"] = np.stack(numbers, axis=1).astype(np.float32)
    return rows, given
