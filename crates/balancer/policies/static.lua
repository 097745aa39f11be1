-- Static: moves nothing. Subtrees that are pinned to a rank go there under every policy, so pins are
-- all the balancing there is.
-- When policy
if false then
-- Where policy
