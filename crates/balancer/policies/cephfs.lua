-- CephFS's own balancer: the policies of the paper's Table 1.
-- Whoever has more than the mean is an exporter, the others import; the largest are matched first.
-- Settings
need_min = 0.8 -- measurements are noisy: what is wished for is sent only to this share
-- Metadata load
metaload = IRD + 2*IWR + READDIR + 2*FETCH + 4*STORE
-- Metadata server load
mdsload = 0.8*MDSs[i]["auth"] + 0.2*MDSs[i]["all"]
    + MDSs[i]["req"] + 10*MDSs[i]["q"]
-- When policy
if MDSs[whoami]["load"] > total/#MDSs then
-- Where policy
    local mean = total/#MDSs
    local exporters, importers = {}, {}
    for rank = 1, #MDSs do
        local surplus = MDSs[rank]["load"] - mean
        if surplus > 0 then
            table.insert(exporters, {rank = rank, left = surplus})
        else
            table.insert(importers, {rank = rank, left = -surplus})
        end
    end
    -- All ranks see the same and match the same way; each carries its own part out.
    local function larger(a, b)
        if a.left ~= b.left then return a.left > b.left end
        return a.rank < b.rank
    end
    table.sort(exporters, larger)
    table.sort(importers, larger)
    -- Loads of ranks also count requests and queues, loads of subtrees do not.
    local scale = min(1, authmetaload/MDSs[whoami]["load"])
    local e, i = 1, 1
    while e <= #exporters and i <= #importers do
        local amount = min(exporters[e].left, importers[i].left)
        if exporters[e].rank == whoami then
            targets[importers[i].rank] = targets[importers[i].rank] + amount*scale
        end
        exporters[e].left = exporters[e].left - amount
        importers[i].left = importers[i].left - amount
        if exporters[e].left <= 0 then e = e + 1 end
        if i <= #importers and importers[i].left <= 0 then i = i + 1 end
    end
-- Howmuch policy
{"big_first"}
