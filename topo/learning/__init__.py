"""Models that learn from a stream while it runs, and bolts that use what they have learnt.

topo has no models of its own: a model is any object with `learn_one` and `predict_one`, as river's,
or with `partial_fit` and `predict`, as scikit-learn's. Neither library is imported here.

- `protocols`: the two kinds of models behind one seam
- `learner`: one model with its measures, its detector of drift and its count; the step of learning
- `memory`: the learners of one task, and how they are saved: by the examples, not by the models
- `learn`, `score`: the operators of the bolts `LearnBolt` and `ScoreBolt`

The batch algorithms of Mahout and a tree whose attributes are learnt in different tasks (SAMOA's)
were not built: a model per key and a member of an ensemble per task are what runs in parallel.
"""
