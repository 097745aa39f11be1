-- When policy
wait=RDState(); go = 0;
if MDSs[whoami] ["cpu"]>48 then
  if wait>0 then WRState(wait-1)
  else WRState(2); go=1; end
else WRState(2) end
if go==1 then
-- Where policy
targets[whoami+1] = MDSs[whoami] ["load"]/4
