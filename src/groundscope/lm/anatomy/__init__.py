"""Where a decoder keeps what is read: attention, residual stream, feed-forward blocks, unembedding."""
