-- Adaptable, too aggressive: whoever has more than the mean levels all, at every tick.
-- Metadata load
metaload = IWR + IRD
-- When policy
myLoad = MDSs[whoami]["load"]
targetLoad = total/#MDSs
if myLoad > targetLoad then
    -- Balancer where policy
    for i = 1, #MDSs do
        if MDSs[i]["load"] < targetLoad then
            targets[i] = targetLoad - MDSs[i]["load"]
        end
    end
end
-- Howmuch policy
{"half", "small", "big", "big_small"}
