"""The model of a run: saved, loaded, predicted with, exported."""

from codedfl.task.model.model import Model, save_model

__all__ = ["Model", "save_model"]
