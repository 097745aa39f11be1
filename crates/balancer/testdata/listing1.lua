-- Metadata load
metaload = IWR
-- Metadata server load
mdsload = MDSs[i] ["all"]
-- When policy
if MDSs[whoami] ["load"] > .01 and
    MDSs[whoami+1] ["load"] < .01 then
-- Where policy
targets[whoami+1] = allmetaload/2
-- Howmuch policy
{"half"}
