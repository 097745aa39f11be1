-- Greedy Spill (Listing 1), after GIGA+: half of everything goes to the next rank if that has nothing.
-- Metadata load
metaload = IWR
-- Metadata server load
mdsload = MDSs[i]["all"]
-- When policy
-- Repaired: the last rank has no next one.
if MDSs[whoami+1] and
    MDSs[whoami]["load"] > .01 and
    MDSs[whoami+1]["load"] < .01 then
-- Where policy
targets[whoami+1] = allmetaload/2
-- Howmuch policy
{"half"}
