"""Faults and abuse: what the library and its command line do when they are killed, starved, lied to and attacked."""
