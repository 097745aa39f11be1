-- Fill and Spill (Listing 3), after LARD: a quarter of the load goes to the next rank when this one was
-- above 48 % CPU for three ticks.
-- Settings
state = 2 -- fires at the third tick, also the first time
-- Metadata load
metaload = IWR
-- Metadata server load
mdsload = MDSs[i]["all"]
-- When policy
wait = RDState(); go = 0
if MDSs[whoami]["cpu"] > 48 then
    if wait > 0 then WRState(wait-1)
    else WRState(2); go = 1 end
else WRState(2) end
-- Repaired: the last rank has nobody to spill to.
if go == 1 and whoami < #MDSs then
-- Where policy
targets[whoami+1] = MDSs[whoami]["load"]/4
-- Howmuch policy
{"big_first", "small_first", "big_small"}
