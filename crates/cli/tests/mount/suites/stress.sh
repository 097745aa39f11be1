# stress-ng's stressors of file systems, each for a few seconds, with verification.
for stressor in access chdir chmod chown copy-file dentry dir dirdeep dirmany fallocate fcntl \
    file-ioctl filename flock fpunch fstat getdent hdd iomix lease link locka lockf lockofd \
    mmap open readahead rename seek sendfile symlink sync-file touch unlink utime xattr; do
    stress-ng --help 2>/dev/null | grep -q -- "--$stressor N" || continue
    extra=
    case $stressor in
    mmap) extra="--mmap-file --mmap-bytes 4m" ;;
    hdd) extra="--hdd-bytes 8m" ;;
    iomix) extra="--iomix-bytes 8m" ;;
    copy-file) extra="--copy-file-bytes 128m" ;;
    seek) extra="--seek-size 4m" ;;
    readahead) extra="--readahead-bytes 8m" ;;
    sync-file) extra="--sync-file-bytes 4m" ;;
    fallocate) extra="--fallocate-bytes 8m" ;;
    esac
    # shellcheck disable=SC2086
    stress-ng --temp-path "$1" "--$stressor" 2 $extra --timeout 3s --verify --oomable \
        >"$2/log" 2>&1 || { cat "$2/log"; echo "failed: $stressor"; failed=1; }
    if grep -q "fail:" "$2/log"; then
        cat "$2/log"
        failed=1
    fi
    echo "$stressor: $(grep -c . "$2/log") lines"
done
exit "${failed-0}"
