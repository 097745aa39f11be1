# The source of a kernel (Debian's linux-source-6.1) is unpacked inside: names, types, modes, sizes,
# times and content are those of a local copy. Then all of it is removed.
archive=${CUDELE_SUITE_ARCHIVE:-/usr/src/linux-source-6.1.tar.xz}
test -f "$archive" || { echo "missing: apt-get install linux-source-6.1"; exit 1; }
took() {
    what=$1
    start=$(date +%s%N)
    shift
    "$@"
    echo "$what: $((($(date +%s%N) - start) / 1000000)) ms"
}
facts() {
    # Directories that the archive does not name have the time of their making.
    (cd "$1" && find . -mindepth 1 \( -type d -newer "$2" -printf '%p %y %m\n' -o \
        -type d -printf '%p %y %m %T@\n' -o \
        -printf '%p %y %m %s %n %T@ %l\n' \) | LC_ALL=C sort)
}
mkdir "$1/in" "$2/in"
touch "$2/begin"
took "unpacked locally" tar -C "$2/in" -xf "$archive"
took "unpacked" tar -C "$1/in" -xf "$archive"
took "listed locally" facts "$2/in" "$2/begin" >"$2/expected"
took "listed" facts "$1/in" "$2/begin" >"$2/found"
# What it took is the last line of either.
sed -i '$d' "$2/expected" "$2/found"
cmp "$2/expected" "$2/found"
wc -l <"$2/found"
took "compared" diff -r --no-dereference "$1/in" "$2/in"
took "removed locally" rm -rf "$2/in"
took "removed" rm -rf "$1/in"
test -z "$(ls -A "$1")"
