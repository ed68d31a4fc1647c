"""From the graph of a program to a topology: which operators share a bolt, and how bolts read.

`compiler` decides that; `chains` and `chain_code` make one function of the stateless operators
behind a source, `joins` and `table_plans` make the bolts of joins and tables, and `program` is the
result.
"""
