"""What all text classifiers share: a batch of texts in, labels out; one failing text does not fail the others."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence

from backends.base import Answer, ClassifyRequest, ClassifyResponse, OnResponse, Request
from backends.errors import AuditError, BackendError
from backends.local.backend import LocalBackend, discard_response

Labels = Mapping[str, float]


class TextClassifier(LocalBackend):
    """Answers `ClassifyRequest`; a subclass computes the labels."""

    batch_size = 64
    _refusal: BackendError | None = None

    def run_blocking(self, batch: Sequence[Request], on_response: OnResponse = discard_response) -> list[Answer]:
        answers: list[Answer] = [
            BackendError("unsupported", f"a text classifier cannot answer a {type(r).__name__}") for r in batch
        ]
        texts = {i: request.text for i, request in enumerate(batch) if isinstance(request, ClassifyRequest)}
        if texts and (refusal := self._cannot_load()) is not None:
            for i in texts:
                answers[i] = refusal
        elif texts:
            for i, answer in zip(texts, self._answers(list(texts.values())), strict=True):
                answers[i] = answer
        return answers

    def _cannot_load(self) -> BackendError | None:
        """Why no text can be answered; None where the classifier is loaded. Tried once: it may take minutes."""
        if self._refusal is None:
            try:
                self._prepare()
            except Exception as error:  # foreign code
                self._refusal = BackendError.of_loading(error)
        return self._refusal

    def close_blocking(self) -> None:
        self._refusal = None

    def _answers(self, texts: list[str]) -> list[Answer]:
        """The texts' labels; if the batch fails, each text is tried alone."""
        try:
            return [ClassifyResponse(labels) for labels in self._labels(texts)]
        except AuditError as error:  # the classifier's fault, not a text's
            return [BackendError.of(error)] * len(texts)
        except Exception as error:  # foreign code: it may fail in any way
            if len(texts) > 1:
                return [answer for text in texts for answer in self._answers([text])]
            return [BackendError.of(error)]

    @abstractmethod
    def _prepare(self) -> None:
        """Load what computes the labels, unless it is loaded."""

    @abstractmethod
    def _labels(self, texts: list[str]) -> Sequence[Labels]:
        """Probability of each label of each text."""
