-- A script in Ceph's dialect: loads are set by the script, ranks count from 0, targets are returned.
fields = {"auth.meta_load", "all.meta_load", "req_rate", "queue_len", "cpu_load_avg"}

local function measure()
  for number, one in pairs(mds) do
    local line = "rank "..number..":"
    for _, field in ipairs(fields) do
      line = line.." "..field.."="..one[field]
    end
    one.load = one["all.meta_load"]
    BAL_LOG(5, line.." load="..one.load)
  end
end

measure()
local out = {}
for number in pairs(mds) do
  out[number] = 0
end
if not mds[whoami+1] then
  BAL_LOG(5, "nobody behind me")
elseif mds[whoami]["load"] > 0.01 and mds[whoami+1]["load"] < 0.01 then
  out[whoami+1] = mds[whoami]["load"]/2
end
return out
