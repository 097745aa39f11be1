-- Hash: every directory and fragment goes to the rank that its number says, whatever its load. Even,
-- and without any locality.
-- Metadata load
metaload = IRD + IWR
-- When policy
if MDSs[whoami]["load"] >= 0 then
-- Where policy
for rank = 1, #MDSs do
    if rank ~= whoami then targets[rank] = 1 end
end
-- Howmuch policy
{"hash"}
