"""Files and folders that are written: whole or not at all, by one run at a time, resumed or refused."""
