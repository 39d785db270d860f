/* An agent that prints one line a second, or, with "silent", none at all. Ends when it is ended. */
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "silent") == 0)
        for (;;)
            pause();
    for (;;) {
        if (write(1, "one more line of output\n", 24) != 24)
            return 1;
        sleep(1);
    }
}
