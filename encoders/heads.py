"""What is put on top of the encoder: sequence classification, masked-LM, and sentence-pair heads.

    SequenceClassifier     encoder -> pooler -> classifier             logits (batch, labels)
    MaskedLanguageModel    encoder -> masked_lm                        logits (tokens, vocab)
    PretrainingModel       encoder -> masked_lm, pooler -> sentence    both: BERT and ALBERT pretraining

The pooler is one dense layer with tanh over the vector of the first token. BERT and ALBERT pretrain it with their
sentence task; RoBERTa has no such task, so there it is new at fine-tuning and belongs to the classification head. The
arithmetic is the same.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from contract.errors import UsageError
from encoders.config import EncoderConfig
from encoders.encoder import Encoder, activation
from encoders.initialise import initialise
from encoders.packing import Packing


class Pooler(nn.Module):
    """``tanh(dense(dropout(first)))``: one vector for the whole text, read at its first token."""

    def __init__(self, config: EncoderConfig, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.looks_for_first = config.family.pads_anywhere
        self.dropout = nn.Dropout(dropout)
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, hidden: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """(batch, seq, hidden) and (batch, seq) -> (batch, hidden)."""
        if self.looks_for_first and attention_mask is not None:
            column = attention_mask.long().argmax(dim=1)  # (batch,): the first of the largest, so the first real token
            first = hidden.gather(1, column[:, None, None].expand(-1, 1, hidden.shape[-1])).squeeze(1)
        else:
            first = hidden[:, 0]
        return torch.tanh(self.dense(self.dropout(first)))


class MaskedLanguageHead(nn.Module):
    """``decode(norm(activation(dense(hidden)))) + bias``: a score for each word of the vocabulary.

    Decoding multiplies by the word embeddings themselves: tied weights are one tensor that is handed over, not two
    names that could drift apart.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.embedding_size)
        self.activation = activation(config.family.masked_lm_activation or config.hidden_act)
        self.norm = nn.LayerNorm(config.embedding_size, eps=config.layer_norm_eps)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))
        if not config.tie_word_embeddings:
            self.decoder = nn.Linear(config.embedding_size, config.vocab_size, bias=False)

    def forward(self, hidden: Tensor, words: Tensor) -> Tensor:
        """(..., hidden) and the word embeddings (vocab, E) -> (..., vocab)."""
        decoder = self.decoder.weight if hasattr(self, "decoder") else words
        return F.linear(self.norm(self.activation(self.dense(hidden))), decoder, self.bias)


class Model(nn.Module):
    """An encoder and what is on top of it. The subclasses add the heads, under the names in the rename tables."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = Encoder(config)


def _chosen(hidden: Tensor, positions: Tensor | None) -> Tensor:
    return hidden if positions is None else hidden.flatten(0, 1)[positions]


def _first_tokens(hidden: Tensor, packing: Packing | None) -> Tensor:
    """What the pooler reads, with the first token of each text in column 0: (texts, seq or 1, hidden)."""
    return hidden if packing is None else hidden[0, packing.starts(hidden.device)].unsqueeze(1)


class SequenceClassifier(Model):
    """Logits for whole texts; what they mean is ``config.labels`` and ``config.problem_type``.

    Built alone, its weights are drawn from PyTorch's global generator; ``checkpoint.load_classifier`` reads them.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        self.pooler = Pooler(config, dropout=config.head_dropout if config.family.dropout_before_pooler else 0.0)
        self.dropout = nn.Dropout(config.head_dropout)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        initialise(self, config)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        *,
        packing: Packing | None = None,
    ) -> Tensor:
        """(batch, seq) -> logits (batch, labels), or (texts, labels) of a packed row.

        See ``Encoder.forward`` for the arguments.
        """
        hidden = self.encoder(input_ids, attention_mask, token_type_ids, packing=packing)
        return self.classifier(self.dropout(self.pooler(_first_tokens(hidden, packing), attention_mask)))


class MaskedLanguageModel(Model):
    """Scores for every word at every position, or at the chosen ones only."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        self.masked_lm = MaskedLanguageHead(config)
        initialise(self, config)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        *,
        positions: Tensor | None = None,
        packing: Packing | None = None,
    ) -> Tensor:
        """Scores (batch, seq, vocab), or (chosen, vocab) at ``positions``.

        Args:
            input_ids: see ``Encoder.forward``, as the next two.
            attention_mask: (batch, seq).
            token_type_ids: (batch, seq).
            positions: (chosen,) int64 indices into the flattened (batch x seq) tokens. In training, 15 % of the tokens
                are predicted; scoring only those saves most of the head's work and memory.
            packing: see ``Encoder.forward``.
        """
        hidden = self.encoder(input_ids, attention_mask, token_type_ids, packing=packing)
        return self.masked_lm(_chosen(hidden, positions), self.encoder.embeddings.word.weight)


class PretrainingModel(Model):
    """Masked-LM and the family's sentence task together: next-sentence for BERT, sentence-order for ALBERT.

    Raises:
        UsageError: the family has no sentence task.
    """

    def __init__(self, config: EncoderConfig) -> None:
        if config.family.sentence_task is None:
            raise UsageError(f"{config.model_type} has no sentence task; pretrain it as a MaskedLanguageModel.")
        super().__init__(config)
        self.masked_lm = MaskedLanguageHead(config)
        self.pooler = Pooler(config)
        self.sentence = nn.Linear(config.hidden_size, 2)
        initialise(self, config)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        *,
        positions: Tensor | None = None,
        packing: Packing | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Word scores as ``MaskedLanguageModel.forward``, and sentence logits (batch, 2), or (texts, 2) when packed.

        Class 0 is the natural case: the second text follows the first (BERT), the two are in order (ALBERT).
        """
        hidden = self.encoder(input_ids, attention_mask, token_type_ids, packing=packing)
        words = self.masked_lm(_chosen(hidden, positions), self.encoder.embeddings.word.weight)
        return words, self.sentence(self.pooler(_first_tokens(hidden, packing), attention_mask))
