"""What a plan costs: time, memory and money, from a model's shape, a layout and a cluster.

`hardware` and `architecture` describe; `plans` holds many layouts as arrays; `training`, `memory`,
`generation` and `collectives` price them; `validation` compares with published measurements.
Everything is a pure function of NumPy arrays, so a hundred thousand layouts cost seconds.
docs/cost-model.md explains the formulas.
"""
