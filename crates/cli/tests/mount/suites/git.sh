# git: a repository with a history is cloned in, worked in, packed and checked.
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 HOME="$2"
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
git init -q "$2/origin"
cd "$2/origin"
for round in 1 2 3 4 5 6 7 8; do
    for file in $(seq 1 60); do
        mkdir -p "d$((file % 7))"
        seq "$round" "$((file * 20))" >"d$((file % 7))/f$file"
    done
    git add . && git commit -q -m "$round"
done
git clone -q --no-hardlinks "$2/origin" "$1/clone"
cd "$1/clone"
git fsck --full --strict
git checkout -q -b work HEAD~4
seq 1 5000 >new && git add new && git commit -q -m new
git mv d1 moved && git commit -q -am moved
git rebase -q --onto HEAD~1 HEAD~1 2>/dev/null || exit 1
git merge -q -m merged origin/HEAD
git stash list && git gc -q --aggressive --prune=now
git fsck --full --strict
git worktree add -q "$1/tree" origin/HEAD
test -z "$(git status --porcelain)"
diff -r -x .git "$2/origin" "$1/tree"
git clone -q "$1/clone" "$1/second"
git -C "$1/second" fsck --full --strict
git -C "$1/clone" rev-list --count HEAD
