"""What the pages of cloud and edge share: look, words, languages, live updates."""
