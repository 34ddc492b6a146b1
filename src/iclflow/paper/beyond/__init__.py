"""The chapter beyond the paper, one file per figure; a new file is a new figure."""
