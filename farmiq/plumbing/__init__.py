"""Thin, boring, knows no farm word: what every service needs of the machine it runs on."""
