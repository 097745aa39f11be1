-- Greedy Spill Evenly (Listing 2): half of everything goes to the middle of the ranks behind this one.
-- Metadata load
metaload = IWR
-- Metadata server load
mdsload = MDSs[i]["all"]
-- When policy
-- Repaired: the rank must be whole, the search goes on while a rank HAS load, and it compares loads.
t = math.floor((#MDSs - whoami + 1)/2) + whoami
if t > #MDSs then t = whoami end
while t ~= whoami and MDSs[t]["load"] > .01 do t = t - 1 end
if MDSs[whoami]["load"] > .01 and
    MDSs[t]["load"] < .01 then
-- Where policy
targets[t] = MDSs[whoami]["load"]/2
-- Howmuch policy
{"half"}
