/* The least that an agent can be. */
int main(void) { return 0; }
