"""BERT, RoBERTa and ALBERT in native PyTorch: the network, its heads, and Hugging Face's files in both directions.

                          BERT                    RoBERTa                     ALBERT
    frame of a text       [CLS] a [SEP] b [SEP]   <s> a </s></s> b </s>       as BERT
    positions             0, 1, 2, ...            pad + 1, pad + 2, ...       as BERT
    segment types         2                       1                           2
    embedding tables      V x H                   V x H                       V x E, then E x H
    stored blocks         one for each layer      one for each layer          one for all layers
    sentence task         next sentence           none                        sentence order
    pooler                pretrained              new with the classifier     pretrained

Narrow tables and shared blocks are configuration, open to every family. Read on in this order:

    config.py, presets.py                     the shape of an encoder, and the published shapes
    family.py                                 what a family may choose; bert.py, roberta.py, albert.py choose
    embeddings.py, attention.py, encoder.py   the network
    sharing.py, packing.py                    layers that share parameters; texts that share a row
    heads.py, initialise.py                   what is on top of it; first values
    weights.py, weight_files.py               Hugging Face's names and files
    checkpoint.py                             the model folder
    training.py, precision.py                 what training loops share
"""
