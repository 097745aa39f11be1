-- Metadata load
metaload = IWR + IRD
-- When policy
max=0
for i=1,#MDSs do
    max = max(MDSs[i]["load"], max)
end
myLoad = MDSs[whoami]["load"]
if myLoad>total/2 and myLoad>=max then
    -- Balancer where policy
    targetLoad=total/#MDSs
    for i=1,#MDSs do
        if MDSs[i]["load"]<targetLoad then
            targets[i]=targetLoad-MDSs[i]["load"]
        end
    end
end
-- Howmuch policy
{"half", "small", "big", "big_small"}
