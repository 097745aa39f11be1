-- When policy
t = ((#MDSs - whoami + 1) / 2) + whoami
if t > #MDSs then t = whoami end
while t ~ = whoami and MDSs[t] < .01 do t = t - 1 end
if MDSs[whoami] ["load"] > .01 and
    MDSs[t] ["load"] < .01 then
-- Where policy
targets[t] = MDSs[whoami] ["load"] / 2
