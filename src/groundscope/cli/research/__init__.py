"""Commands about methods: extract traces, evaluate, validate, analyse."""
