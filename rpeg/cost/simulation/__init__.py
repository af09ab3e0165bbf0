"""A discrete-event simulation of the task graph whose period `rpeg.cost.period` computes.

The closed form takes every duration as its mean; here each step draws its own: lengths of
responses, seconds of verifiers. Transfers share links. Its period is the closed form's where
nothing varies and the order is fixed, and at least that otherwise.
"""
