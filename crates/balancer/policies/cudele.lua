-- Cudele's own balancer.
--  * Load is work: the rate of requests times what one costs, and the requests that wait. Waiting
--    alone is no surplus: who does no more work than the others would send what they then send back.
--  * One matching of exporters and importers, which every rank finds alike, so no rank is filled twice.
--  * Calm: a surplus is a fifth of the mean, and lasts for two ticks unless it is large. What was just
--    sent counts for its importer until a heartbeat can know of it; ranks that were silent get nothing.
--  * When levelling does not help, because one directory is more than a rank's share, fewer ranks are
--    levelled, so few that it may go: hot directories that share a rank are parted.
--  * Worth it: what moves must save more work, over half a minute, than moving costs.
-- Settings
need_max = 1.9 -- what comes nearer to what is wanted than nothing may go
-- Metadata load
metaload = IRD + IWR + READDIR + 2*FETCH + 4*STORE
-- Metadata server load
mdsload = MDSs[i]["req"]*MDSs[i]["cost"] + MDSs[i]["q"]
-- When policy
local saved = RDState()
if type(saved) ~= "table" or type(saved.over) ~= "number" then saved = {over = 0} end
-- What was to be sent in the last tick is there, if this rank has less for it.
local went = saved.sum and saved.mine - MDSs[whoami]["load"] > saved.sum/2
local loads, mean = {}, 0
for rank = 1, #MDSs do
    loads[rank] = MDSs[rank]["load"]
    -- Its heartbeat left before what was sent came.
    local sent = saved[rank]
    if went and sent and MDSs[rank]["age"] > 0.9*tick then loads[rank] = loads[rank] + sent end
    mean = mean + loads[rank]/#MDSs
end
local mine = loads[whoami]
local work, allwork = MDSs[whoami]["req"]*MDSs[whoami]["cost"], 0
for rank = 1, #MDSs do allwork = allwork + MDSs[rank]["req"]*MDSs[rank]["cost"] end
-- A rank that has time left is no reason to give up locality.
local over = mine > 1.2*mean and work*#MDSs > 1.05*allwork and MDSs[whoami]["cpu"] > 50
local state = {over = over and saved.over + 1 or 0, mine = mine, sum = 0}
WRState(state)
if over and (state.over >= 2 or mine > 2*mean) then
-- Where policy
    local exporters, importers = {}, {}
    for rank = 1, #MDSs do
        local surplus = loads[rank] - mean
        if surplus > 0 then
            table.insert(exporters, {rank = rank, left = surplus})
        elseif -surplus > 0.05*mean and MDSs[rank]["age"] < 2*tick then
            table.insert(importers, {rank = rank, left = -surplus})
        end
    end
    local function larger(a, b)
        if a.left ~= b.left then return a.left > b.left end
        return a.rank < b.rank
    end
    table.sort(exporters, larger)
    table.sort(importers, larger)
    -- Levelling did not help, because one directory is more than a rank's share. Among fewer ranks
    -- it is less, unless it is more than half of what is here: then it has to be divided.
    if state.over >= 2 and mine > 1.6*mean and #importers > 0 then
        local ways, level = #importers, mean
        local function gets() return level - loads[importers[1].rank] end
        while ways > 0 and hottest*mine > 1.9*gets() do
            ways, level = ways//2, mine
            for at = 1, ways do level = level + loads[importers[at].rank] end
            level = level/(ways + 1)
        end
        if ways > 0 and ways < #importers then
            exporters = {{rank = whoami, left = mine - level}}
            local emptiest = {}
            for at = 1, ways do
                local rank = importers[at].rank
                emptiest[at] = {rank = rank, left = max(0, level - loads[rank])}
            end
            importers = emptiest
        end
    end
    local e, i = 1, 1
    while e <= #exporters and i <= #importers do
        local amount = min(exporters[e].left, importers[i].left)
        local to = importers[i].rank
        -- Waiting is not work: beyond a whole rank it only says that there is more than one.
        local saves = min(amount, 1)*3*tick
        if exporters[e].rank == whoami and saves > movecost then
            targets[to] = targets[to] + authmetaload*amount/mine
            state[to] = (state[to] or 0) + amount
            state.sum = state.sum + amount
        end
        exporters[e].left = exporters[e].left - amount
        importers[i].left = importers[i].left - amount
        if exporters[e].left <= 0 then e = e + 1 end
        if i <= #importers and importers[i].left <= 0 then i = i + 1 end
    end
    WRState(state)
end
-- Howmuch policy
{"big_first", "small_first", "big_small", "half", "best_fit"}
