/* The least that a loop around an agent can be: starts the program named first, waits for its
   output, and appends it to the file named second. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(int argc, char **argv) {
    static char bytes[65536];
    int ends[2];
    if (argc < 3 || pipe(ends) != 0)
        return 2;
    if (fork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(ends[1], 1);
        close(ends[0]);
        close(ends[1]);
        execl(argv[1], argv[1], (char *)0);
        _exit(127);
    }
    close(ends[1]);
    int log = open(argv[2], O_WRONLY | O_CREAT | O_APPEND, 0666);
    struct pollfd polled = {.fd = ends[0], .events = POLLIN};
    while (poll(&polled, 1, -1) > 0) {
        ssize_t length = read(ends[0], bytes, sizeof bytes);
        if (length <= 0 || write(log, bytes, length) != length)
            return 1;
    }
    return 1;
}
