# A big tree comes in as an archive, and goes out as one: both are the same, byte by byte.
pack() {
    tar -C "$1" --sort=name --numeric-owner --format=posix \
        --pax-option=exthdr.name=%d/PaxHeaders/%f,delete=atime,delete=ctime -cf "$2" .
}
mkdir "$2/tree" "$1/in"
for part in /usr/include /usr/share/perl /usr/share/zoneinfo /etc; do
    test -d "$part" && cp -a "$part" "$2/tree/"
done
chmod 755 "$2/tree"
touch -d 2001-01-01 "$2/tree"
pack "$2/tree" "$2/one.tar"
tar -C "$1/in" -xpf "$2/one.tar"
pack "$1/in" "$2/two.tar"
cmp "$2/one.tar" "$2/two.tar"
# The archive itself, through the mount.
cp "$2/one.tar" "$1/archive.tar"
cmp "$2/one.tar" "$1/archive.tar"
tar -tf "$1/archive.tar" | wc -l
stat -c '%s bytes' "$1/archive.tar"
