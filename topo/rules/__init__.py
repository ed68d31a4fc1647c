"""Rules and subscriptions: conditions as data, with what to do about the events that fulfil them.

- `rule`, `files`: a `Rule`, checked when it is made, and rules files in TOML
- `recent`: counts, sums and the like over the latest events of a key
- `index`: which of many conditions a message may fulfil
- `ruleset`: rules that were compiled for the fields of an input; one event is asked of them
- `tables`: reference tables that conditions look up
- `operator`, `counting`: the work of a `RuleBolt`, whose rules ask each event alone or count
- `subscriptions`: that of a `SubscriptionBolt`, many conditions that come and go on a stream
"""
