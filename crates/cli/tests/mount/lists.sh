# Sets access control lists in the directory $1 and prints who may do what: the same on every file
# system that has them. Run as root, with setfacl, getfacl and setpriv.
umask 022
cd "$1"

as() {
    user=$1
    shift
    setpriv --reuid="$user" --regid="$user" --clear-groups -- "$@" 2>/dev/null
}
may() { if as "$@" >/dev/null; then echo "may: $*"; else echo "may not: $*"; fi; }
lists() { getfacl --numeric --omit-header "$@"; stat -c '%A %u %g %n' "$@"; }

echo "== one file, one directory"
mkdir private
echo secret >private/f
chmod 700 private
chmod 600 private/f
may 1001 cat private/f
setfacl -m u:1001:x private
setfacl -m u:1001:r,g:1003:rw private/f
lists private private/f
may 1001 cat private/f
may 1001 ls private
may 1001 sh -c 'echo more >>private/f'
may 1002 cat private/f
setfacl -m g:1003:x private
may 1003 sh -c 'echo more >>private/f'
may 1003 touch private/new

echo "== chmod and the mask"
chmod g=r private/f
lists private/f
may 1003 sh -c 'echo more >>private/f'
may 1003 cat private/f
chmod 604 private/f
may 1001 setfacl -m u:1001:rwx private/f
chmod 660 private/f
lists private/f

echo "== new files"
mkdir shared
setfacl -d -m u:1001:rwx,g:1003:rx,o::- shared
setfacl -m u:1001:rwx shared
umask 077
echo x >shared/f
mkdir shared/d
mkfifo shared/p
ln -s f shared/l
echo y >shared/d/g
umask 022
as 1001 sh -c 'umask 077; mkdir shared/theirs; echo z >shared/theirs/f'
lists shared shared/f shared/d shared/p shared/d/g shared/theirs shared/theirs/f
may 1003 cat shared/d/g
may 1002 cat shared/d/g
may 1001 rm shared/f

echo "== copies and moves"
echo plain >plain
cp plain shared/copied
cp -p shared/d/g kept
mv plain shared/moved
lists shared/copied kept shared/moved
tar --acls -cf lists.tar shared/d
mkdir out
tar --acls -xf lists.tar -C out
lists out/shared/d out/shared/d/g

echo "== without them again"
setfacl -b shared/d/g
setfacl -k shared/d
setfacl -x u:1001 kept
lists shared/d/g shared/d kept
setfacl -R -b shared private
lists shared shared/theirs private/f
may 1001 cat private/f
chmod 755 private
chown 1001:1003 private/f
chmod 2750 private/f
as 1001 setfacl -m u:1002:r private/f
lists private/f

echo "== what is none"
setfacl -d -m u:1001:r kept 2>/dev/null || echo "no default list of a file"
setfattr -n system.posix_acl_access -v nonsense kept 2>/dev/null || echo "no list of nonsense"
getfattr -h -d -m '^system' kept shared
