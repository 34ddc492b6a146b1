"""How it is trained: one loss on moments, one on tokens, and two ways down, descent and flow."""
