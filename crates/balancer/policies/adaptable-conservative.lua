-- Adaptable, conservative: as Listing 4, but what is little stays where it is.
-- Whoever has more than half of all load brings the others up to the mean.
-- Settings
min_offload = 50 -- the published default of mds_bal_minoffload
-- Metadata load
metaload = IWR + IRD
-- When policy
-- Repaired: the listing calls its variable `max`, and then calls `max`.
most = 0
for i = 1, #MDSs do
    most = max(MDSs[i]["load"], most)
end
myLoad = MDSs[whoami]["load"]
if myLoad > total/2 and myLoad >= most then
    -- Balancer where policy
    targetLoad = total/#MDSs
    for i = 1, #MDSs do
        if MDSs[i]["load"] < targetLoad then
            targets[i] = targetLoad - MDSs[i]["load"]
        end
    end
end
-- Howmuch policy
{"half", "small", "big", "big_small"}
