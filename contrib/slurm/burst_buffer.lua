-- Cudele for Slurm's plugin burst_buffer/lua: a job's directory, its policy and its key.
--
-- slurmctld makes the directory, copies files into it before the job and out of it after the job,
-- and decides from the end of the job what becomes of unmerged work. `prolog` and `epilog` mount
-- the directory on the compute nodes, and carry the decision out.
--
-- Values of a job are hostile. Each is of few characters when the job is submitted, every argument
-- of a command is quoted, and requests about the directory are made with a key of the job's user,
-- so that Cudele refuses whatever that user may not do.

-- The directory of Cudele below which jobs have theirs; mode 1777.
local ROOT = "/scratch"
-- The cluster's directory on this host, for keys of users (`cudele auth add`).
local CLUSTER = "/var/lib/cudele"
-- What slurmctld knows of jobs and users; nobody but root reads it.
local STATE = "/var/lib/cudele-slurm/ctl"
-- Cudele's directory from which the nodes read the record, the key and the end of a job.
local SHARED = "/slurm"
-- Hours that a key outlives the time limit of its job, for the end of the job.
local GRACE_HOURS = 24
-- What may become of a job's work.
local ENDS = { "keep", "merge", "discard" }
-- What the key of a job may do in its directory.
local RIGHTS = "read,write,decouple,merge,merge-unchecked,merge-by-reference,recover"

-- Presets that work without requests. The others are shared by all nodes at once.
local DECOUPLED = {
	batchfs = "local", hdfs = "global", deltafs = "local", ramdisk = "none",
	["weak-none"] = "none", ["weak-local"] = "local", ["weak-global"] = "global",
	["invisible-none"] = "none", ["invisible-local"] = "local", ["invisible-global"] = "global",
}
local STRONG = {
	posix = true, ["posix-volatile"] = true, indexfs = true,
	["strong-none"] = true, ["strong-local"] = true, ["strong-global"] = true,
}
local INVISIBLE = {
	deltafs = true, ramdisk = true,
	["invisible-none"] = true, ["invisible-local"] = true, ["invisible-global"] = true,
}

-- Options -----------------------------------------------------------------------------------------

local function is_path(value)
	return #value <= 1000 and value:find("^/[%w._/@+=,:-]*[%w._@+=,:-]$")
		and not (value .. "/"):find("/%.*/")
end

local HOST_PATH = "an absolute path of letters, digits and . _ - @ + = , : without . and .."
local CHECKS = {
	policy = { "the name of a preset (\"cudele policy check NAME\")",
		function(v) return DECOUPLED[v] or STRONG[v] end },
	path = { "a path below " .. ROOT .. " of letters, digits and . _ - @ + = , : without . and ..",
		function(v) return is_path(v) and v:sub(1, #ROOT + 1) == ROOT .. "/" end },
	stage_in = { HOST_PATH, is_path },
	stage_out = { HOST_PATH, is_path },
	on_failure = { "keep, merge or discard",
		function(v) return v == "keep" or v == "merge" or v == "discard" end },
	bytes = { "a number, or one with K, M, G or T",
		function(v) return v:find("^[1-9]%d*[KMGT]?$") end },
	inodes = { "a number, or one with K, M or G",
		function(v) return v:find("^[1-9]%d*[KMG]?$") end },
	merge = { "the number of a job", function(v) return v:find("^%d+$") end },
	discard = { "the number of a job", function(v) return v:find("^%d+$") end },
}

-- The options of a job script, or nil and the reason. Slurm reads directives up to the first line
-- that is no comment, and so does this.
local function options(script)
	local given = {}
	local file, why = io.open(script)
	if not file then
		return nil, "the job script cannot be read: " .. why
	end
	for line in file:lines() do
		if line:sub(1, 1) ~= "#" then break end
		local directive = line:match("^#BB_LUA(.*)$")
		for word in (directive or ""):gmatch("%S+") do
			local name, value = word:match("^([a-z_]+)=(.*)$")
			local check = CHECKS[name]
			local cause
			if not check then
				cause = "it is no option: there are policy, path, stage_in, stage_out, on_failure, bytes, "
					.. "inodes, merge and discard"
			elseif given[name] then
				cause = "it is there twice"
			elseif not check[2](value) then
				cause = "it is not " .. check[1]
			end
			if cause then
				file:close()
				return nil, string.format("#BB_LUA %s: %s", word:sub(1, 80):gsub("[^%g]", "?"), cause)
			end
			given[name] = value
		end
	end
	file:close()
	local policy = given.policy or "batchfs"
	if given.stage_out and INVISIBLE[policy] then
		return nil, "#BB_LUA stage_out: nothing is merged under the policy " .. policy
			.. "; choose another policy, such as batchfs"
	end
	local former = given.merge or given.discard
	if former and (given.path or given.policy or given.merge and given.discard) then
		return nil, "#BB_LUA merge and discard: the directory is that of job " .. former
			.. "; leave path and policy out, and name one of the two"
	end
	given.policy = former and "posix" or policy
	given.on_failure = given.on_failure or "keep"
	return given
end

-- Commands ----------------------------------------------------------------------------------------

local function quote(words)
	local quoted = {}
	for at, word in ipairs(words) do
		quoted[at] = "'" .. tostring(word):gsub("'", "'\\''") .. "'"
	end
	return table.concat(quoted, " ")
end

-- Runs words as a command. Returns whether it succeeded, and its output with its errors.
local function run(words)
	local pipe = io.popen("{ " .. quote(words) .. "; } </dev/null 2>&1; echo \" $?\"")
	local said = pipe:read("*a")
	pipe:close()
	local output, code = said:match("^(.*) (%d+)\n$")
	return code == "0", (output or said):gsub("%s+$", "")
end

local function cudele(key, ...)
	local words = { "env", "CUDELE_STATE=" .. STATE .. "/state", "timeout", "250", "cudele" }
	for _, word in ipairs(key and { "--key", key, ... } or { ... }) do
		words[#words + 1] = word
	end
	return run(words)
end

-- Runs words as the user of a job, with all groups of that user and nothing of root.
local function as_user(job, words)
	local all = { "setpriv", "--reuid", job.uid, "--regid", job.gid, "--init-groups", "--" }
	for _, word in ipairs(words) do all[#all + 1] = word end
	return all
end

local function home(id) return STATE .. "/" .. id end

local function read(file)
	local open = io.open(file)
	local text = open and open:read("*a")
	if open then open:close() end
	return text
end

local function write(file, text)
	local open = assert(io.open(file, "w"))
	open:write(text)
	open:close()
end

local function load(id)
	local text = read(home(id) .. "/job")
	if not text then return nil end
	local job = { id = id }
	for name, value in text:gmatch("([%w_]+)=([^\n]*)\n") do job[name] = value end
	return job
end

local function store(job)
	local lines = {}
	for name, value in pairs(job) do lines[#lines + 1] = name .. "=" .. value .. "\n" end
	table.sort(lines)
	write(home(job.id) .. "/job", table.concat(lines))
end

-- What `scontrol show bbstat` says of the job to every user.
local function note(job, text)
	write(home(job.id) .. "/said", text .. "\n")
end

-- Slurm shows the reason to the user, in the job's SystemComment.
local function fail(job, what, why)
	local reason = what .. ": " .. why
	slurm.log_error("cudele: job %s: %s", job.id, reason)
	note(job, "needs a look at its SystemComment")
	return slurm.ERROR, reason
end

-- The key of a user, made at the first job. `cudele auth rm slurm-UID` ends it, with the keys of
-- the user's jobs.
local function key_of_user(uid)
	local file = STATE .. "/keys/" .. uid .. ".pem"
	if read(file) then return file end
	local ok, said = cudele(nil, "auth", "add", "slurm-" .. uid, "--user", uid, "--dir", CLUSTER,
		"--out", file)
	-- Another job of the user may have made it meanwhile.
	if ok or read(file) then return file end
	return nil, "a key of user " .. uid .. " cannot be made: " .. said .. "; an administrator makes "
		.. file .. " with \"cudele auth add\""
end

-- A key for the directory of a job, and for the life of the job.
local function narrow(job, hours)
	local file = home(job.id) .. "/key"
	os.remove(file)
	local ok, said = cudele(nil, "auth", "narrow", STATE .. "/keys/" .. job.uid .. ".pem", "--allow",
		RIGHTS .. ":" .. job.path, "--hours", hours, "--out", file)
	return ok, said
end

-- The answer of Slurm about a job. `flags` is COMPLETING until all epilogs have ended, and hides
-- the state of the job. An exit code of 0 is a success unless a node is lost. No field has a text
-- that users choose, such as a job's name.
local function ask_slurm(id)
	local function ask(...)
		return run({ "timeout", "60", "squeue", "-h", "-t", "all", "-j", id, ... })
	end
	local ok, said = ask("-o", "%T|%l|%N")
	local flags, limit, nodes = said:match("^([%u_]+)|([^|]*)|([^|]*)$")
	if not ok or not flags then return nil, said end
	local _, exit = ask("-O", "exit_code:.12")
	local lost
	ok, lost = run({ "timeout", "60", "sinfo", "-h", "-N", "-n", nodes, "-t", "down,fail",
		"-o", "%N" })
	local good = exit:find("^%s*0$") and ok and lost == ""
	return { flags = flags, limit = limit, nodes = nodes, good = good }
end

-- The hours of a time limit, as [D-]HH:MM:SS or MM:SS, rounded up. Without a limit, a month.
local function hours_of(limit)
	local days, rest = limit:match("^(%d+)-(.*)$")
	local hours, minutes = (rest or limit):match("^(%d+):(%d+):%d+$")
	if not hours then return limit:find("^%d+:%d+$") and 1 or 24 * 30 end
	return (days or 0) * 24 + hours + (tonumber(minutes) > 0 and 1 or 0)
end

-- The paths of a job's subtrees that a client has. Newlines and quotes in a name are escaped, so
-- that no name forges a line of the answer.
local function decoupled(job)
	local ok, said = cudele(nil, "status", "--json")
	local at = ok and said:find('\n  "decoupled": [', 1, true)
	if not at then return nil, said end
	local found = {}
	for path in said:sub(at):gmatch('\n%s*"path": "([^"]*)"') do
		if path == job.path or path:sub(1, #job.path + 1) == job.path .. "/" then
			found[#found + 1] = path
		end
	end
	return found
end

-- The same when subtrees have just been merged: the status of a server is up to half a second old.
local function still_decoupled(job)
	local found, why
	for _ = 1, 10 do
		found, why = decoupled(job)
		if found and #found == 0 then break end
		run({ "sleep", "0.3" })
	end
	return found, why
end

-- The node of a subtree: its name is the last of the path if several nodes have one.
local function node_of(job, path)
	return path:sub(#job.path + 2) ~= "" and path:sub(#job.path + 2) or job.nodes or "its node"
end

local function publish(job, name)
	return cudele(nil, "cp", "local:" .. home(job.id) .. "/" .. name,
		SHARED .. "/" .. job.id .. "/" .. name)
end

-- Removes the tree of a job with the rights of its user: the user may have replaced names above.
local function remove_tree(job)
	return cudele(STATE .. "/keys/" .. job.uid .. ".pem", "rm", "-r", job.path)
end

-- Tells the epilogs of the nodes, which wait for it, what becomes of the job's work.
local function decide(job)
	local words = { "rm" }
	for _, name in ipairs(ENDS) do
		if name ~= job["end"] then words[#words + 1] = SHARED .. "/" .. job.id .. "/" .. name end
	end
	return cudele(nil, (table.unpack or unpack)(words))
end

-- Forgets a job of which no work is left. One that never ran has nothing but the copy of its files.
local function forget(job)
	if job.never and job.made == "yes" then remove_tree(job) end
	cudele(nil, "rm", "-r", SHARED .. "/" .. job.id)
	run({ "rm", "-rf", home(job.id) })
end

local function known()
	local ids = {}
	local _, said = run({ "ls", STATE })
	for id in said:gmatch("[^\n]+") do
		if id:find("^%d+$") then ids[#ids + 1] = id end
	end
	return ids
end

-- Forgets jobs without work: those whose kept work was merged since, and cancelled ones of which
-- Slurm 22.05 has killed the teardown with the stage-in.
local function sweep()
	for _, id in ipairs(known()) do
		local job = load(id)
		local over = job and job.over
		if job and not job["end"] and not over then
			local ok, state = run({ "timeout", "60", "squeue", "-h", "-t", "all", "-j", id, "-o", "%T" })
			over = state == "CANCELLED" or not ok and state:find("Invalid job id", 1, true)
		end
		if over and not job["end"] then job.never = "yes" end
		local left = over and decoupled(job)
		if left and #left == 0 then forget(job) end
	end
end

-- Calls of slurmctld itself: without commands, because all of Slurm waits for them ---------------

function slurm_bb_job_process(script)
	local found, why = options(script)
	if not found then return slurm.ERROR, why end
	return slurm.SUCCESS
end

function slurm_bb_pools()
	return slurm.SUCCESS
end

function slurm_bb_paths(id, _, file)
	local job = load(id)
	if not job then return slurm.ERROR, "job " .. id .. " has no record in " .. STATE end
	local run_dir = "/run/cudele-slurm/" .. id
	write(file, "CUDELE_JOB=" .. run_dir .. "/job\nCUDELE_SHARED=" .. run_dir .. "/mnt\nCUDELE_KEY="
		.. run_dir .. "/key\n")
	return slurm.SUCCESS
end

-- Ends the kept work of a former job of the same user, on the nodes that have it. Slurm starts the
-- command there as root.
local function end_former(job)
	local former = load(job.merge or job.discard)
	local verb = job.merge and "merge" or "discard"
	if not former or former.uid ~= job.uid then
		return nil, "no work of that job and of this user is kept"
	end
	for _, path in ipairs(decoupled(former) or {}) do
		local ok, said = run({ "timeout", "120", "srun", "--quiet", "-N1", "-n1",
			"-w", node_of(former, path), "-J", "cudele-" .. verb, "-D", "/",
			"/usr/share/cudele/slurm/epilog", verb, former.id })
		if not ok then return nil, path .. " on " .. node_of(former, path) .. ": " .. said end
	end
	local left, why = still_decoupled(former)
	if not left or #left > 0 then return nil, why or left[1] .. " is still decoupled" end
	forget(former)
	return former.path
end

-- Before the job ----------------------------------------------------------------------------------

function slurm_bb_setup(id, uid, gid, _, _, script)
	local job, why = options(script)
	if not job then return slurm.ERROR, why end
	run({ "mkdir", "-p", "-m", "700", home(id), STATE .. "/keys" })
	job.id, job.uid, job.gid = id, uid, gid
	local _, user = run({ "id", "-nu", uid })
	job.user = user:find("^[%w._-]+$") and user or uid
	if job.merge or job.discard then
		local former = job.merge or job.discard
		job.path, why = end_former(job)
		if not job.path then return fail(job, "the work of job " .. former .. " is as it was", why) end
	end
	job.path = job.path or ROOT .. "/" .. job.user .. "." .. id
	job.decoupled = DECOUPLED[job.policy] and "yes" or "no"
	local key, cause = key_of_user(uid)
	if not key then return fail(job, "no key", cause) end

	local ok, said = cudele(key, "mkdir", "-m", "700", job.path)
	job.made = ok and "yes" or load(id) and load(id).made or "no"
	if not ok and not said:find("EEXIST", 1, true) then
		return fail(job, job.path .. " cannot be made", said)
	end
	store(job)
	ok, said = cudele(key, "stat", "--json", job.path)
	if not ok or said:match('"uid": (%d+)') ~= uid then
		return fail(job, job.path .. " cannot be used", ok and "it belongs to another user" or said)
	end
	-- A job that starts again may have left work of its former run.
	local left
	left, cause = decoupled(job)
	if not left then return fail(job, "Cudele does not answer", cause) end
	if #left > 0 then
		return fail(job, left[1] .. " is decoupled already",
			"the work of another run is not merged; \"scontrol show bbstat\" shows it")
	end
	if job.bytes or job.inodes then
		-- Only root sets limits, so the directory has to be one that this call has made.
		if job.made == "no" then
			return fail(job, "no limits for " .. job.path, "it is there already; leave path= out")
		end
		local words = { "quota", "set", job.path }
		for _, name in ipairs({ "bytes", "inodes" }) do
			if job[name] then
				words[#words + 1] = "--" .. name
				words[#words + 1] = job[name]
			end
		end
		ok, said = cudele(nil, (table.unpack or unpack)(words))
		if not ok then return fail(job, "no limits for " .. job.path, said) end
	end
	if job.decoupled == "no" then
		ok, said = cudele(key, "policy", "set", job.path, job.policy)
		if not ok then return fail(job, job.path .. " has not the policy " .. job.policy, said) end
	end
	ok, said = narrow(job, 24)
	if not ok then return fail(job, "no key for " .. job.path, said) end
	note(job, "is set up")
	return slurm.SUCCESS
end

function slurm_bb_data_in(id)
	local job = load(id)
	if job.stage_in then
		-- The user's process reads, and a process with the job's key writes: neither has more rights
		-- than the user.
		local reader = quote(as_user(job, { "tar", "-C", job.stage_in, "--owner=:" .. job.uid,
			"--group=:" .. job.gid, "-c", "." }))
		local writer = quote({ "env", "CUDELE_STATE=" .. STATE .. "/state", "cudele", "--key",
			home(id) .. "/key", "ingest", "-", job.path })
		local ok, said = run({ "bash", "-o", "pipefail", "-c", reader .. " | " .. writer })
		if not ok then return fail(job, job.stage_in .. " cannot be copied to " .. job.path, said) end
		note(job, "is staged in")
	end
	return slurm.SUCCESS
end

function slurm_bb_test_data_in() return slurm.SUCCESS end

function slurm_bb_real_size() return slurm.SUCCESS end

function slurm_bb_pre_run(id)
	local job = load(id)
	local now, why = ask_slurm(id)
	if not now then return fail(job, "Slurm does not answer", why) end
	job.nodes = now.nodes
	store(job)
	local ok, said = narrow(job, math.floor(hours_of(now.limit)) + GRACE_HOURS)
	if not ok then return fail(job, "no key for " .. job.path, said) end
	cudele(nil, "mkdir", "-m", "700", SHARED .. "/" .. id)
	-- The decision about the end is the removal of two of these: a full store takes removals only.
	for _, name in ipairs(ENDS) do write(home(id) .. "/" .. name, "") end
	for _, name in ipairs({ "key", "job", "keep", "merge", "discard" }) do
		ok, said = publish(job, name)
		if not ok then return fail(job, "the nodes get no " .. name, said) end
	end
	note(job, "runs on " .. job.nodes)
	return slurm.SUCCESS
end

-- After the job -----------------------------------------------------------------------------------

function slurm_bb_post_run(id)
	local job = load(id)
	local now, why = ask_slurm(id)
	if not now then return fail(job, "Slurm does not answer", why) end
	local good = INVISIBLE[job.policy] and "keep" or "merge"
	job["end"] = now.good and good or job.on_failure
	-- Without durability the work is gone with the mount.
	if job["end"] == "keep" and DECOUPLED[job.policy] == "none" then job["end"] = "discard" end
	store(job)
	local ok, said = decide(job)
	if not ok then return fail(job, "the nodes keep the work of the job", said) end
	note(job, "has ended" .. (now.good and "" or " with a failure") .. ", " .. job["end"])
	return slurm.SUCCESS
end

-- Whether all nodes that Slurm still has are done: their epilogs have ended.
local function await_epilogs(id)
	for _ = 1, 3600 do
		local now, why = ask_slurm(id)
		if not now then return nil, why end
		if not now.flags:find("COMPLETING", 1, true) then return true end
		run({ "sleep", "0.5" })
	end
	return nil, "the epilog of a node runs for half an hour"
end

-- Carries the end of a job out for a subtree that its node has left: a lost node, or a merge that
-- failed there. Returns the reason why work stays.
local function end_of(job, path)
	local ending = job["end"]
	local node = node_of(job, path)
	local remedy = "; \"sbatch --bb='#BB_LUA merge=" .. job.id .. "'\" merges it, discard=" .. job.id
		.. " gives it up"
	if ending == "keep" then
		return path .. ": the work of the job is kept on " .. node .. remedy
	end
	local key = STATE .. "/keys/" .. job.uid .. ".pem"
	local lasts = DECOUPLED[job.policy]
	if ending == "merge" and lasts ~= "global" then
		return path .. ": " .. node .. " did not merge its work, and has it under the policy "
			.. job.policy .. remedy .. ", when the node is back"
	end
	-- The journal in the store has the promised work; its former client is fenced.
	local ok, said = cudele(key, "recover", path)
	if ok then ok, said = cudele(key, ending, path) end
	-- Only root gives up what a lost client left without a journal.
	if not ok and ending == "discard" then ok, said = cudele(nil, "discard", "--force", path) end
	if not ok then return path .. ": cannot " .. ending .. " the work of " .. node .. ": " .. said end
end

local function copy_out(job)
	-- The mount is made by root, which may open the store, and gone with its namespace. The copy is
	-- made by the user, with the user's rights on this host.
	local at = STATE .. "/mnt"
	local mount = quote({ "cudele", "--key", home(job.id) .. "/key", "mount", "--root", job.path,
		"-o", "allow_other,ro", "--log", home(job.id) .. "/log", at })
	local copy = quote(as_user(job, { "cp", "-rT", "--preserve=mode,timestamps", "--", at,
		job.stage_out }))
	at = quote({ at })
	return run({ "unshare", "--mount", "sh", "-c", "mkdir -p -m 711 " .. at .. " && " .. mount
		.. " >/dev/null && " .. copy .. "; end=$?; umount " .. at .. "; exit $end" })
end

function slurm_bb_data_out(id)
	local job = load(id)
	local ok, said = await_epilogs(id)
	if not ok then return fail(job, "the end of the nodes is unknown", said) end
	local left
	left, said = still_decoupled(job)
	if not left then return fail(job, "Cudele does not answer", said) end
	local kept = {}
	for _, path in ipairs(left) do kept[#kept + 1] = end_of(job, path) end
	if #kept > 0 then
		local what = ({ keep = "kept", merge = "not merged", discard = "not discarded" })[job["end"]]
		return fail(job, what, table.concat(kept, "; "))
	end
	if job["end"] == "discard" and job.made == "yes" then
		ok, said = remove_tree(job)
		if not ok then return fail(job, job.path .. " cannot be removed", said) end
	elseif job.stage_out and (job["end"] == "merge") then
		ok, said = copy_out(job)
		if not ok then return fail(job, job.path .. " cannot be copied to " .. job.stage_out, said) end
	end
	note(job, "is done")
	return slurm.SUCCESS
end

function slurm_bb_test_data_out() return slurm.SUCCESS end

-- Slurm calls this at the end of every job, also of one that never ran a task.
function slurm_bb_job_teardown(id)
	local job = load(id)
	if not job then return slurm.SUCCESS end
	if not job["end"] then
		job["end"], job.never = "discard", "yes"
		store(job)
		if job.nodes then
			-- A job that was cancelled in its prolog: the nodes may have decoupled already.
			decide(job)
			await_epilogs(id)
		end
	end
	local left, why = still_decoupled(job)
	if not left then return fail(job, "Cudele does not answer", why) end
	if #left == 0 then
		forget(job)
	else
		job.over = "yes"
		store(job)
	end
	sweep()
	return slurm.SUCCESS
end

-- What users ask ----------------------------------------------------------------------------------

-- `scontrol show bbstat` lists the jobs. Slurm 22.05 does not say which user asks, so that the
-- answer has no path and no reason: the job's SystemComment has both.
function slurm_bb_get_status()
	local lines = {}
	sweep()
	for _, id in ipairs(known()) do
		local job = load(id)
		if job then
			local nodes = {}
			for at, path in ipairs(decoupled(job) or {}) do nodes[at] = node_of(job, path) end
			lines[#lines + 1] = string.format("job %s of %s, policy %s: %s%s\n", id, job.user, job.policy,
				(read(home(id) .. "/said") or ""):gsub("\n$", ""),
				#nodes > 0 and "; decoupled on " .. table.concat(nodes, ", ") or "")
		end
	end
	return slurm.SUCCESS, #lines > 0 and table.concat(lines) or "no job has a directory\n"
end
