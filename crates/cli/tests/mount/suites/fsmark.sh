# fs_mark: many small files by several threads, synced.
fs_mark -d "$1/a" -d "$1/b" -n 1000 -s 5000 -S 1 -l "$2/log"
fs_mark -d "$1/c" -d "$1/d" -n 1000 -s 100 -S 0 -D 16 -k -l "$2/log"
test "$(find "$1/c" "$1/d" -type f | wc -l)" = 2000
