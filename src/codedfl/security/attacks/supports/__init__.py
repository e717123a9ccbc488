"""Attacks that recover error supports."""
